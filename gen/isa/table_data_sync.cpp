// Rows of the instruction table: barriers, mbarrier, fences, warp communication, control and time.
// PTX ISA 9.7.9.6, 9.7.12, 9.7.13, 9.7.19. Next: gen/isa/table.h for the notation.
#include "gen/isa/table_data.h"

namespace flashptx::gen::rows {
namespace {

#define COUNT "imm:arrival_count=1..1048575"
#define BYTES "b32|imm:bytes=0..1048575"
#define PARITY "b32|imm:parity=0..1"
#define MASK "b32|imm"
#define ID "b32|imm:barrier_id=0..15"
#define THREADS "b32|imm:thread_count=32..1024/32"

const Form kSync[] = {
    // -- warps
    {"shfl.sync{.bfly|.idx|.up|.down}.b32", "b32|f32|pair b32|f32 b32|imm:lane=0..31 imm|b32 " MASK,
     60, G, "shfl"},
    {"vote.sync{.any|.all|.uni}.pred", "pred pred " MASK, 60, G, "vote"},
    {"vote.sync.ballot.b32", "b32 pred " MASK, 60, G, "vote"},
    {"match.any.sync.b32", "b32 b32 " MASK, 60, G, "match"},
    {"match.any.sync.b64", "b32 b64 " MASK, 60, G, "match"},
    {"match.all.sync.b32", "b32|pair b32 " MASK, 60, G, "match"},
    {"match.all.sync.b64", "b32|pair b64 " MASK, 60, G, "match"},
    {"activemask.b32", "b32", 62, G, "activemask"},
    {"redux.sync{.add|.min|.max}{.u32|.s32}", "b32 b32 " MASK, 70, G, "redux"},
    {"redux.sync{.and|.or|.xor}.b32", "b32 b32 " MASK, 70, G, "redux"},
    {"elect.sync", "pair " MASK, 80, G, "elect"},
    {"bar.warp.sync", MASK, 60, G, "bar"},
    {"setmaxnreg{.inc|.dec}.sync.aligned.u32", "imm:count=24..256/8", 80, A, "setmaxnreg"},
    // -- barriers of the CTA; threads count both those that sync and those that arrive
    {"bar{.sync|.cta.sync}", ID " ?" THREADS, 10, G, "bar"},
    {"bar{.arrive|.cta.arrive}", ID " " THREADS, 20, G, "bar"},
    {"barrier{|.cta}.sync{.aligned|}", ID " ?" THREADS, 60, G, "barrier"},
    {"barrier{|.cta}.arrive{.aligned|}", ID " " THREADS, 60, G, "barrier"},
    {"bar.red.popc.u32", "b32 " ID " pred", 20, G, "bar"},
    {"bar.red{.and|.or}.pred", "pred " ID " pred", 20, G, "bar"},
    {"barrier.red.popc{.aligned|}.u32", "b32 " ID " pred", 60, G, "barrier"},
    {"bar.red.popc.u32", "b32 " ID " " THREADS " pred", 20, G, "bar"},
    {"bar.red{.and|.or}.pred", "pred " ID " " THREADS " pred", 20, G, "bar"},
    // -- clusters
    {"barrier.cluster.arrive{.aligned|}", "", 78, G, "barrier.cluster"},
    {"barrier.cluster.arrive{.release|.relaxed}{.aligned|}", "", 80, G, "barrier.cluster"},
    {"barrier.cluster.wait{.aligned|}", "", 78, G, "barrier.cluster"},
    {"barrier.cluster.wait.acquire{.aligned|}", "", 80, G, "barrier.cluster"},
    {"mapa{.shared::cluster|}.u32", "b32 b32|sym b32|imm:rank=0..15", 78, G, "mapa"},
    {"mapa{.shared::cluster|}.u64", "b64 b64|sym b32|imm:rank=0..15", 78, G, "mapa"},
    {"getctarank{.shared::cluster|}.u32", "b32 b32|sym", 78, G, "getctarank"},
    {"getctarank{.shared::cluster|}.u64", "b32 b64|sym", 78, G, "getctarank"},
    // -- mbarrier
    {"mbarrier.init{.shared|.shared::cta}.b64", "smem:8 b32|" COUNT, 78, G, "mbarrier.init"},
    {"mbarrier.inval{.shared|.shared::cta}.b64", "smem:8", 78, G, "mbarrier.inval"},
    {"mbarrier.arrive{.shared|.shared::cta}.b64", "sink|b64 smem:8 ?b32|" COUNT, 78, G,
     "mbarrier.arrive"},
    {"mbarrier.arrive{.release.cta|.release.cluster}.shared::cta.b64",
     "sink|b64 smem:8 ?b32|" COUNT, 80, G, "mbarrier.arrive"},
    {"mbarrier.arrive{.release.cluster|.release.cta|}.shared::cluster.b64",
     "sink smem:8 ?b32|" COUNT, 80, G, "mbarrier.arrive"},
    {"mbarrier.arrive{.relaxed.cta|.relaxed.cluster}.shared::cta.b64",
     "sink|b64 smem:8 ?b32|" COUNT, 86, G, "mbarrier.arrive"},
    {"mbarrier.arrive{.relaxed.cta|.relaxed.cluster}.shared::cluster.b64",
     "sink smem:8 ?b32|" COUNT, 86, G, "mbarrier.arrive"},
    {"mbarrier.arrive.noComplete.shared::cta.b64", "b64 smem:8 b32|" COUNT, 78, G,
     "mbarrier.arrive"},
    {"mbarrier.arrive.noComplete.release.cta.shared::cta.b64", "b64 smem:8 b32|" COUNT, 80, G,
     "mbarrier.arrive"},
    {"mbarrier.arrive.expect_tx{.release.cta|.release.cluster|}.shared::cta.b64",
     "sink|b64 smem:8 " BYTES, 80, G, "mbarrier.arrive"},
    {"mbarrier.arrive.expect_tx{.release.cta|.release.cluster|}.shared::cluster.b64",
     "sink smem:8 " BYTES, 80, G, "mbarrier.arrive"},
    {"mbarrier.arrive_drop.shared::cta.b64", "sink|b64 smem:8 ?b32|" COUNT, 78, G,
     "mbarrier.arrive_drop"},
    {"mbarrier.arrive_drop{.release.cta|.release.cluster}.shared::cta.b64",
     "sink|b64 smem:8 ?b32|" COUNT, 80, G, "mbarrier.arrive_drop"},
    {"mbarrier.arrive_drop{.release.cta|.release.cluster|}.shared::cluster.b64",
     "sink smem:8 ?b32|" COUNT, 80, G, "mbarrier.arrive_drop"},
    {"mbarrier.arrive_drop.expect_tx{.release.cta|.release.cluster|}.shared::cta.b64",
     "sink|b64 smem:8 " BYTES, 80, G, "mbarrier.arrive_drop"},
    {"mbarrier.expect_tx{.relaxed.cta|.relaxed.cluster|}{.shared::cta|.shared::cluster}.b64",
     "smem:8 " BYTES, 80, G, "mbarrier.expect_tx"},
    {"mbarrier.complete_tx{.relaxed.cta|.relaxed.cluster|}{.shared::cta|.shared::cluster}.b64",
     "smem:8 " BYTES, 80, G, "mbarrier.complete_tx"},
    {"mbarrier.try_wait.parity.shared::cta.b64", "pred smem:8 " PARITY " ?b32|imm", 78, G,
     "mbarrier.try_wait"},
    {"mbarrier.try_wait.parity{.acquire.cta|.acquire.cluster}.shared::cta.b64",
     "pred smem:8 " PARITY " ?b32|imm", 80, G, "mbarrier.try_wait"},
    {"mbarrier.try_wait.shared::cta.b64", "pred smem:8 b64 ?b32|imm", 78, G, "mbarrier.try_wait"},
    {"mbarrier.try_wait{.acquire.cta|.acquire.cluster}.shared::cta.b64", "pred smem:8 b64 ?b32|imm",
     80, G, "mbarrier.try_wait"},
    {"mbarrier.test_wait.parity.shared::cta.b64", "pred smem:8 " PARITY, 78, G,
     "mbarrier.test_wait"},
    {"mbarrier.test_wait.parity{.acquire.cta|.acquire.cluster}.shared::cta.b64",
     "pred smem:8 " PARITY, 80, G, "mbarrier.test_wait"},
    {"mbarrier.test_wait.shared::cta.b64", "pred smem:8 b64", 78, G, "mbarrier.test_wait"},
    {"mbarrier.test_wait{.acquire.cta|.acquire.cluster}.shared::cta.b64", "pred smem:8 b64", 80, G,
     "mbarrier.test_wait"},
    {"mbarrier{.try_wait|.test_wait}.parity{.relaxed.cta|.relaxed.cluster}.shared::cta.b64",
     "pred smem:8 " PARITY, 86, G, "mbarrier.try_wait"},
    {"mbarrier.pending_count.b64", "b32 b64", 70, G, "mbarrier.pending_count"},
    // -- fences
    {"fence{.acq_rel|.sc|}{.cta|.gpu|.sys|.cluster}", "", 78, G, "fence"},
    {"fence{.acquire|.release}{.cta|.gpu|.sys|.cluster}", "", 86, G, "fence"},
    {"fence.acquire.sync_restrict::shared::cluster.cluster", "", 86, G, "fence"},
    {"fence.release.sync_restrict::shared::cta.cluster", "", 86, G, "fence"},
    {"fence.mbarrier_init.release.cluster", "", 80, G, "fence"},
    {"fence.proxy.alias", "", 75, G, "fence"},
    {"fence.proxy.async{.shared::cta|.shared::cluster|.global|}", "", 80, G, "fence"},
    {"fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster", "", 86, G,
     "fence"},
    {"fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster", "", 86, G, "fence"},
    {"fence.proxy.tensormap::generic.release{.cta|.cluster|.gpu|.sys}", "", 83, G, "fence"},
    {"fence.proxy.tensormap::generic.acquire{.cta|.cluster|.gpu|.sys}",
     "gmem:128 imm:bytes=128..128", 83, G, "fence"},
    {"membar{.cta|.gl|.sys}", "", 14, G, "membar"},
    // -- control, time, dependent launch
    {"bra{.uni|}", "label", 10, G, "bra"},
    {"ret{.uni|}", "", 10, G, "ret"},
    {"exit", "", 10, G, "exit"},
    {"trap", "", 10, G, "trap"},
    {"brkpt", "", 10, G, "brkpt"},
    {"pmevent", "imm:event=0..15", 14, G, "pmevent"},
    {"nanosleep.u32", "b32|imm:nanoseconds=0..1000000", 63, G, "nanosleep"},
    {"griddepcontrol{.wait|.launch_dependents}", "", 78, G, "griddepcontrol"},
};
#undef COUNT
#undef BYTES
#undef PARITY
#undef MASK
#undef ID
#undef THREADS

}  // namespace

std::span<const Form> sync() { return kSync; }

}  // namespace flashptx::gen::rows
