// Products of 8-bit rows with 4-bit integers: linear_groups.hpp, where a group has a float16 scale and perhaps a zero.
#include "int4.hpp"
#include "grouped_linear.hpp"

namespace penstock {
namespace {

// Groups have zeros of their own, or all have kInt4Zero.
template <bool kHasZeros>
struct Int4Format {
    using Shape = Int4Shape;
    static constexpr bool kCorrects = kHasZeros;
    static constexpr float kUnit = 1.0f;
    static constexpr int kMost = 15;

    static int32_t offset(int32_t total) { return kHasZeros ? total : -static_cast<int32_t>(kInt4Zero) * total; }
    static Bytes bytes(Bytes nibbles) { return nibbles; }
    static Vec scale(const uint8_t* group, int64_t lane) {
        return load_fp16(reinterpret_cast<const uint16_t*>(group) + lane);
    }
    static Ints zeros(const uint8_t* group, int64_t lane) {
        if (!kHasZeros) return broadcast_int(kInt4Zero);
        return load_int16(reinterpret_cast<const int16_t*>(group + kHeaderBytes) + lane);
    }
    static Ints corrected(Ints sum, const uint8_t* group, int64_t lane, int32_t offset) {
        return sum - zeros(group, lane) * broadcast_int(offset);
    }
#if defined(__AMX_INT8__)
    struct Signs {
        Bytes zero;
        Signs(const uint8_t* group, int64_t lane) : zero(repeat_bytes(zeros(group, lane))) {}
        Bytes bytes(Bytes nibbles) const { return subtract_bytes(nibbles, zero); }
    };
#endif
};

struct Int4Formats {
    using Shape = Int4Shape;
    template <class Body>
    static void choose(const Weight& weight, const Body& body) {
        if (weight.has_zeros) body(Int4Format<true>{});
        else body(Int4Format<false>{});
    }
};

}  // namespace
}  // namespace penstock

extern "C" void penstock_linear_int4(const void* arguments) {
    penstock::linear_in_groups<penstock::Int4Formats>(*static_cast<const penstock::Linear*>(arguments));
}
extern "C" void penstock_gated_linear_int4(const void* arguments) {
    penstock::gated_linear_in_groups<penstock::Int4Formats>(*static_cast<const penstock::GatedLinear*>(arguments));
}
extern "C" void penstock_experts_int4(const void* arguments) {
    using Kind = penstock::GroupedExperts<penstock::Int4Formats>;
    penstock::compute_experts<Kind>(*static_cast<const penstock::Experts*>(arguments));
}
