// Products of the same rows with weights of several formats, whose outputs lie side by side: each is the recorded one of
// its format, and writes its columns.
#include "activation.hpp"
#include "linear_output.hpp"
#include "step.hpp"

namespace penstock {

struct JoinedPart {
    Kernel product;  // of the part's format
    int64_t first_output;
    Linear linear;  // its output is that of the whole
};

struct JoinedLinear {
    Linear whole;  // what others see: the output, and what it belongs to
    int64_t num_parts;
    const JoinedPart* parts;
};

static void multiply_parts(const JoinedLinear& joined) {
    for (int64_t i = 0; i < joined.num_parts; ++i) {
        Linear own = joined.parts[i].linear;
        own.output = joined.whole.output + joined.parts[i].first_output;
        own.output_stride = joined.whole.output_stride;
        joined.parts[i].product(&own);
    }
}

}  // namespace penstock

extern "C" void penstock_linear_joined(const void* arguments) {
    penstock::multiply_parts(*static_cast<const penstock::JoinedLinear*>(arguments));
}
extern "C" void penstock_gated_linear_joined(const void* arguments) {
    const auto& gated = *static_cast<const penstock::GatedLinear*>(arguments);
    penstock_linear_joined(gated.product);
    penstock::gate_rows(*gated.gate);
}
