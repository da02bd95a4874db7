// Products of 8-bit rows with MXFP4: linear_groups.hpp, where a group has a power of 2 and nibbles stand for whole numbers.
//
// Powers are kept as those of the doubled numbers are read; the half that is left meets the row's scale, both exactly.
#include "grouped_linear.hpp"
#include "mxfp4.hpp"

namespace penstock {
namespace {

struct Mxfp4Format {
    using Shape = Mxfp4Shape;
    static constexpr bool kCorrects = false;
    static constexpr float kUnit = 0.5f;
    static constexpr int kMost = 2 * kMxfp4Zero;

    Bytes table = load_table(kMxfp4Unsigned);

    static int32_t offset(int32_t total) { return -kMxfp4Zero * total; }
    Bytes bytes(Bytes nibbles) const { return look_up(table, nibbles); }
    // 2^(exponent - 127): the exponent's bits, where they are not those of a denormal number; infinite for 255, which
    // stands for no number.
    static Vec scale(const uint8_t* group, int64_t lane) {
        return bits_to_float(maximum(shift_left(load_uint8(group + lane), 23), broadcast_int(1 << 22)));
    }
    static Ints corrected(Ints sum, const uint8_t*, int64_t, int32_t) { return sum; }
#if defined(__AMX_INT8__)
    struct Signs {
        Bytes table = load_table(kMxfp4Doubled);
        Signs(const uint8_t*, int64_t) {}
        Bytes bytes(Bytes nibbles) const { return look_up(table, nibbles); }
    };
#endif
};

struct Mxfp4Formats {
    using Shape = Mxfp4Shape;
    template <class Body>
    static void choose(const Weight&, const Body& body) {
        body(Mxfp4Format{});
    }
};

}  // namespace
}  // namespace penstock

extern "C" void penstock_linear_mxfp4(const void* arguments) {
    penstock::linear_in_groups<penstock::Mxfp4Formats>(*static_cast<const penstock::Linear*>(arguments));
}
extern "C" void penstock_gated_linear_mxfp4(const void* arguments) {
    penstock::gated_linear_in_groups<penstock::Mxfp4Formats>(*static_cast<const penstock::GatedLinear*>(arguments));
}
extern "C" void penstock_experts_mxfp4(const void* arguments) {
    using Kind = penstock::GroupedExperts<penstock::Mxfp4Formats>;
    penstock::compute_experts<Kind>(*static_cast<const penstock::Experts*>(arguments));
}
