// See tests/host/fake_driver.h.
#include "tests/host/fake_driver.h"

#include <cstdlib>
#include <cstring>

namespace flashptx::test {
namespace {

FakeDriver state;
thread_local std::vector<driver::Context> stack;
std::string linked;  // what the last link gave

constexpr std::uintptr_t primary_base = 0x1000, own_base = 0x2000;

int device_of(driver::Context c) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(c) & 0xff);
}

driver::Result broken() { return state.next_error; }

void write_log(unsigned options, int* option, void** value, int which, const std::string& text) {
  char* buffer = nullptr;
  std::size_t capacity = 0;
  for (unsigned i = 0; i < options; ++i) {
    if (option[i] == which) buffer = static_cast<char*>(value[i]);
    if (option[i] == which + 1) capacity = reinterpret_cast<std::size_t>(value[i]);
  }
  if (buffer == nullptr || capacity == 0) return;
  const std::size_t n = std::min(capacity - 1, text.size());
  std::memcpy(buffer, text.data(), n);
  buffer[n] = 0;
}

driver::Result load(driver::Module* module, const void* image, unsigned options, int* option,
                    void** value) {
  if (broken()) return broken();
  const bool cubin = std::memcmp(image,
                                 "\x7f"
                                 "ELF",
                                 4) == 0;
  const driver::Result e = cubin ? state.cubin_result : state.assemble_result;
  ++(cubin ? state.cubin_loads : state.text_loads);
  write_log(options, option, value, driver::error_log_buffer, cubin ? "" : state.error_log);
  write_log(options, option, value, driver::info_log_buffer, cubin ? "" : state.info_log);
  if (e != driver::success) return e;
  ++state.modules;
  *module = reinterpret_cast<driver::Module>(0x77);
  return driver::success;
}

driver::Result error_name(driver::Result e, const char** name) {
  *name = e == 700   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : e == 218 ? "CUDA_ERROR_INVALID_PTX"
          : e == 222 ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
          : e == 2   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : e == 1   ? "CUDA_ERROR_INVALID_VALUE"
          : e == 221 ? "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"
          : e == 200 ? "CUDA_ERROR_INVALID_IMAGE"
          : e == 101 ? "CUDA_ERROR_INVALID_DEVICE"
                     : nullptr;
  return *name ? driver::success : 1;
}

driver::Result attribute(int* value, int which, driver::DeviceId d) {
  const FakeGpu& g = state.gpus[static_cast<std::size_t>(d)];
  switch (which) {
    case driver::compute_capability_major:
      *value = g.major;
      break;
    case driver::compute_capability_minor:
      *value = g.minor;
      break;
    case driver::multiprocessor_count:
      *value = 132;
      break;
    case driver::max_shared_memory_per_block_optin:
      *value = 232448;
      break;
    case driver::l2_cache_size:
      *value = 60 << 20;
      break;
    default:
      return 1;
  }
  return driver::success;
}

driver::Result launch(const driver::LaunchConfig* c, driver::Function, void**, void**) {
  if (broken()) return broken();
  state.launches.push_back(*c);
  state.attributes.assign(c->attributes, c->attributes + c->attribute_count);
  state.launch_context = stack.empty() ? nullptr : stack.back();
  return driver::success;
}

DriverApi contexts(DriverApi a) {
  a.primary_context_retain = [](driver::Context* c, driver::DeviceId d) -> driver::Result {
    ++state.primary_retained;
    *c = fake_primary(d);
    return driver::success;
  };
  a.primary_context_release = [](driver::DeviceId) -> driver::Result {
    --state.primary_retained;
    return driver::success;
  };
  a.primary_context_get_state = [](driver::DeviceId, unsigned* flags,
                                   int* active) -> driver::Result {
    *flags = 0;
    *active = 1;
    return driver::success;
  };
  a.context_get_current = [](driver::Context* c) -> driver::Result {
    ++state.context_reads;
    *c = stack.empty() ? nullptr : stack.back();
    return driver::success;
  };
  a.context_get_device = [](driver::DeviceId* d) -> driver::Result {
    *d = device_of(stack.back());
    return driver::success;
  };
  a.context_push = [](driver::Context c) -> driver::Result {
    ++state.pushes;
    stack.push_back(c);
    return driver::success;
  };
  a.context_pop = [](driver::Context* c) -> driver::Result {
    *c = stack.back();
    stack.pop_back();
    return driver::success;
  };
  return a;
}

DriverApi devices(DriverApi a) {
  a.init = [](unsigned) -> driver::Result { return driver::success; };
  a.driver_get_version = [](int* v) -> driver::Result {
    return *v = state.version, driver::success;
  };
  a.get_error_name = error_name;
  a.device_get_count = [](int* n) -> driver::Result {
    *n = static_cast<int>(state.gpus.size());
    return driver::success;
  };
  a.device_get = [](driver::DeviceId* d, int ordinal) -> driver::Result {
    *d = ordinal;
    return ordinal < static_cast<int>(state.gpus.size()) ? driver::success : 101;
  };
  a.device_get_name = [](char* name, int n, driver::DeviceId d) -> driver::Result {
    std::strncpy(name, state.gpus[static_cast<std::size_t>(d)].name.c_str(),
                 static_cast<std::size_t>(n));
    return driver::success;
  };
  a.device_get_attribute = attribute;
  a.device_total_mem = [](std::size_t* b, driver::DeviceId) -> driver::Result {
    return *b = 1 << 30, 0;
  };
  return a;
}

DriverApi modules(DriverApi a) {
  a.module_load_data_ex = load;
  a.module_unload = [](driver::Module) -> driver::Result {
    return --state.modules, driver::success;
  };
  a.module_get_function = [](driver::Function* f, driver::Module,
                             const char* name) -> driver::Result {
    *f = reinterpret_cast<driver::Function>(0x99);
    return std::strcmp(name, "missing") == 0 ? 500 : driver::success;
  };
  a.function_get_attribute = [](int* v, int which, driver::Function) -> driver::Result {
    *v = which == driver::num_regs ? 168 : 0;
    return driver::success;
  };
  a.function_set_attribute = [](driver::Function, int, int) -> driver::Result { return broken(); };
  a.link_create = [](unsigned, int*, void**, driver::Link* l) -> driver::Result {
    *l = reinterpret_cast<driver::Link>(0x55);
    return broken();
  };
  a.link_add_data = [](driver::Link, int, void*, std::size_t, const char*, unsigned, int*,
                       void**) -> driver::Result { return state.assemble_result; };
  a.link_complete = [](driver::Link, void** cubin, std::size_t* bytes) -> driver::Result {
    ++state.links;
    linked = fake_cubin(state.linked_usetmaxreg);
    *cubin = linked.data();
    *bytes = linked.size();
    return driver::success;
  };
  a.link_destroy = [](driver::Link) -> driver::Result {
    std::fill(linked.begin(), linked.end(), '\xee');  // the memory is gone with the link
    return driver::success;
  };
  return a;
}

DriverApi the_rest(DriverApi a) {
  a.mem_alloc = [](driver::Pointer* p, std::size_t bytes) -> driver::Result {
    *p = 0x100000;
    return bytes > (std::size_t{1} << 40) ? driver::out_of_memory : broken();
  };
  a.mem_free = [](driver::Pointer) -> driver::Result { return broken(); };
  a.mem_get_info = [](std::size_t* f, std::size_t* t) -> driver::Result {
    return *f = *t = 1 << 30, 0;
  };
  a.memcpy_to_device = [](driver::Pointer, const void*, std::size_t) -> driver::Result {
    return broken();
  };
  a.memcpy_from_device = [](void*, driver::Pointer, std::size_t) -> driver::Result {
    return broken();
  };
  a.memset_async = [](driver::Pointer, unsigned char, std::size_t, Stream) -> driver::Result {
    return broken();
  };
  a.launch_kernel_ex = launch;
  a.stream_synchronize = [](Stream) -> driver::Result { return broken(); };
  a.stream_is_capturing = [](Stream s, int* status) -> driver::Result {
    ++state.capture_reads;
    return *status = s != nullptr, 0;
  };
  a.event_create = [](driver::Event* e, unsigned) -> driver::Result {
    *e = reinterpret_cast<driver::Event>(0x33);
    return ++state.events, driver::success;
  };
  a.event_destroy = [](driver::Event) -> driver::Result { return --state.events, driver::success; };
  a.event_record = [](driver::Event, Stream) -> driver::Result { return broken(); };
  a.event_synchronize = [](driver::Event) -> driver::Result { return broken(); };
  a.event_elapsed = [](float* ms, driver::Event, driver::Event) -> driver::Result {
    return *ms = 1.5f, 0;
  };
  a.tensor_map_encode_tiled = [](void* map, int type, std::uint32_t, void* address, const std::uint64_t*,
                                 const std::uint64_t*, const std::uint32_t*, const std::uint32_t*,
                                 int, int swizzle, int, int) -> driver::Result {
    state.encoded.push_back(reinterpret_cast<std::uintptr_t>(address));
    state.last_type = type;
    state.last_swizzle = swizzle;
    return reinterpret_cast<std::uintptr_t>(map) % 64 == 0 ? driver::success : 1;
  };
  return a;
}

template <typename T>
void put(std::string* s, std::size_t at, T v) {
  std::memcpy(s->data() + at, &v, sizeof v);
}

}  // namespace

FakeDriver& fake_driver() { return state; }

void reset_fake_driver() {
  state = FakeDriver{};
  stack.clear();
}

const DriverApi& fake_driver_api() {
  static const DriverApi api = the_rest(modules(devices(contexts({}))));
  return api;
}

driver::Context fake_primary(int device) {
  return reinterpret_cast<driver::Context>(primary_base + static_cast<std::uintptr_t>(device));
}
driver::Context fake_own_context(int device) {
  return reinterpret_cast<driver::Context>(own_base + static_cast<std::uintptr_t>(device));
}
void make_current(driver::Context context) { stack.assign(context == nullptr ? 0 : 1, context); }
driver::Context current_context() { return stack.empty() ? nullptr : stack.back(); }

std::string fake_cubin(int usetmaxreg, int instructions) {
  const std::size_t code = 64, table = code + 16 * static_cast<std::size_t>(instructions);
  std::string s(table + 2 * 64, '\0');
  std::memcpy(s.data(),
              "\x7f"
              "ELF",
              4);
  put<std::uint64_t>(&s, 40, table);
  put<std::uint16_t>(&s, 58, 64);
  put<std::uint16_t>(&s, 60, 2);
  put<std::uint64_t>(&s, table + 64 + 8, 6);  // allocated, executable
  put<std::uint64_t>(&s, table + 64 + 24, code);
  put<std::uint64_t>(&s, table + 64 + 32, table - code);
  for (int i = 0; i < instructions; ++i)
    put<std::uint64_t>(&s, code + 16 * static_cast<std::size_t>(i),
                       i < usetmaxreg ? 0x18000079c8 : 0x7918);
  return s;
}

}  // namespace flashptx::test
