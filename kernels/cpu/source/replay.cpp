// A recorded list of calls, run one after another: a whole step costs the interpreter one call.
#include "step.hpp"

namespace penstock {
namespace {

struct Recording {
    const Call* calls;
    int64_t count;
};

}  // namespace
}  // namespace penstock

extern "C" void penstock_replay(const void* arguments) {
    const auto& recording = *static_cast<const penstock::Recording*>(arguments);
    for (int64_t i = 0; i < recording.count; ++i) recording.calls[i].kernel(recording.calls[i].arguments);
}

