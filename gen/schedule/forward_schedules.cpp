// The schedules of the forward kernel: the steady state of each, in program order.
//
// Reading a table: rows run top to bottom inside one trip; {pv, 1} works on the block of the trip before.
#include "gen/schedule/schedule.h"

namespace flashptx {

const std::vector<Schedule>& forward_schedules() {
  static const std::vector<Schedule> kSchedules = {
      // FlashAttention-3's intra-warpgroup overlap (paper section 3.2): the softmax of block j runs while
      // the tensor cores do P V of block j-1. P is packed only after that product has finished, because its
      // A registers are read until then (ptxas C7513 otherwise).
      {"overlap",
       "softmax of block j under P V of block j-1",
       {{Do::token_wait},
        {Do::qk},
        {Do::pv, 1},
        {Do::token_pass},
        {Do::wait_qk},
        {Do::free_k},
        {Do::mask_max},
        {Do::exp_sum},
        {Do::wait_pv, 1},
        {Do::free_v, 1},
        {Do::rescale_o},
        {Do::pack_p}}},
      // No overlap inside a warpgroup; three or four warpgroups overlap each other. P may take S's registers,
      // so that 128 columns fit in 160 registers. The token is held until Q K^T is complete.
      {"serial",
       "one block after the other; other warpgroups fill the tensor cores",
       {{Do::token_wait},
        {Do::qk},
        {Do::wait_qk},
        {Do::token_pass},
        {Do::free_k},
        {Do::mask_max},
        {Do::exp_sum},
        {Do::rescale_o},
        {Do::pack_p},
        {Do::pv},
        {Do::wait_pv},
        {Do::free_v}}},
      // The same, but P V stays in flight over the back edge and finishes under the next Q K^T.
      {"trailing",
       "P V of block j-1 finishes under Q K^T of block j",
       {{Do::token_wait},
        {Do::qk},
        {Do::wait_qk},
        {Do::token_pass},
        {Do::wait_pv, 1},
        {Do::free_v, 1},
        {Do::free_k},
        {Do::mask_max},
        {Do::exp_sum},
        {Do::rescale_o},
        {Do::pack_p},
        {Do::pv}}},
      // trailing, cut at another place: in front of P V. The steps follow each other as they do there, but the tile's first P V is
      // the loop's own. ptxas (13.0) gives the P of a product before the loop registers of its own for as long as the loop
      // runs, 16 at head_dim 256, where with 232 registers none are left (C7512).
      {"rotated",
       "trailing with its trip cut in front of P V",
       {{Do::pv, 1},
        {Do::token_wait},
        {Do::qk},
        {Do::wait_qk},
        {Do::token_pass},
        {Do::wait_pv, 1},
        {Do::free_v, 1},
        {Do::free_k},
        {Do::mask_max},
        {Do::exp_sum},
        {Do::rescale_o},
        {Do::pack_p}}},
  };
  return kSchedules;
}

const Schedule* find_forward_schedule(const std::string& name) {
  for (const Schedule& s : forward_schedules())
    if (s.name == name) return &s;
  return nullptr;
}

}  // namespace flashptx
