// A program of its own that holds the lanes of one instruction set (vector, integers, partials, quads) to what the
// same numbers give one by one. It needs no processor of ours: an emulator runs it for other machines. Prints "ok" or
// what differs.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "partials.hpp"
#include "quads.hpp"

namespace {

using namespace penstock;
constexpr int kCount = static_cast<int>(kLanes), kBytes = 4 * kCount;

int round_number = 0;
[[noreturn]] void fail(const char* what, int lane) {
    std::printf("%s differs in lane %d of round %d\n", what, lane, round_number);
    std::exit(1);
}

// The same bits, or both no number.
bool same(float a, float b) { return (a != a && b != b) || std::memcmp(&a, &b, sizeof a) == 0; }

template <class Expected>
void expect(const char* what, Vec found, const Expected& expected) {
    float lanes[kCount];
    store(lanes, found);
    for (int i = 0; i < kCount; ++i)
        if (!same(lanes[i], expected(i))) fail(what, i);
}
template <class Expected>
void expect(const char* what, Ints found, const Expected& expected) {
    int32_t lanes[kCount];
    store(lanes, found);
    for (int i = 0; i < kCount; ++i)
        if (lanes[i] != expected(i)) fail(what, i);
}
template <class Expected>
void expect(const char* what, Bytes found, const Expected& expected) {
    uint8_t bytes[kBytes];
    store_bytes(bytes, found);
    for (int i = 0; i < kBytes; ++i)
        if (bytes[i] != static_cast<uint8_t>(expected(i))) fail(what, i);
}
template <class Expected>
void expect(const char* what, Quads found, const Expected& expected) {
    int32_t lanes[kCount];
    store_quads(lanes, found);
    for (int i = 0; i < kCount; ++i)
        if (lanes[i] != static_cast<int32_t>(expected(i))) fail(what, i);
}

struct Numbers {
    float x[2 * kCount], y[kCount], small[kCount], row[45];
    uint8_t u[kBytes];
    int8_t s[kBytes];
    uint16_t halves[2 * kCount];
    int16_t shorts[kCount];

    explicit Numbers(std::mt19937& random) {
        static const float odd[] = {0.0f, -0.0f, 1.0f, -1.5f, 2.5f, 65504.0f, 65520.0f, 6e-8f, 3e-39f, INFINITY, -INFINITY, NAN};
        std::normal_distribution<float> normal(0.0f, 50.0f);
        const auto any = [&] { return random() % 6 ? normal(random) : odd[random() % 12]; };
        for (float& each : x) each = any();
        for (float& each : y) each = any();
        for (float& each : row) each = normal(random);
        for (float& each : small) each = std::round(normal(random)) / 2.0f;
        for (uint8_t& each : u) each = static_cast<uint8_t>(random());
        for (int8_t& each : s) each = static_cast<int8_t>(random() % 255) - 127;
        for (uint16_t& each : halves) each = static_cast<uint16_t>(random());
        for (int16_t& each : shorts) each = static_cast<int16_t>(random());
    }
};

float of_bf16(uint16_t bits) {
    const uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

float of_fp16(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? std::ldexp(1024.0f + fraction, exponent - 25) : std::ldexp(1.0f * fraction, -24));
}

// The nearest of all, of two equally near ones the even one.
template <class Widened>
bool is_nearest(float value, uint16_t found, const Widened& widened) {
    if (value != value) return widened(found) != widened(found);
    const double error = std::fabs(double{widened(found)} - value);
    for (const int step : {-1, 1}) {
        const uint16_t other = static_cast<uint16_t>(found + step);
        const float beside = widened(other);
        if (beside != beside || std::signbit(beside) != std::signbit(value) || std::isinf(value)) continue;
        if (std::isinf(beside) || std::isinf(widened(found))) continue;
        const double theirs = std::fabs(double{beside} - value);
        if (theirs < error || (theirs == error && (found & 1))) return false;
    }
    return true;
}

void check_floats(const Numbers& n) {
    const Vec x = load(n.x), y = load(n.y), small = load(n.small);
    expect("add", x + y, [&](int i) { return n.x[i] + n.y[i]; });
    expect("subtract", x - y, [&](int i) { return n.x[i] - n.y[i]; });
    expect("multiply", x * y, [&](int i) { return n.x[i] * n.y[i]; });
    expect("divide", x / y, [&](int i) { return n.x[i] / n.y[i]; });
    expect("fma", fma(x, y, small), [&](int i) { return std::fma(n.x[i], n.y[i], n.small[i]); });
    expect("minimum", minimum(x, y), [&](int i) { return n.x[i] < n.y[i] ? n.x[i] : n.y[i]; });
    expect("maximum", maximum(x, y), [&](int i) { return n.x[i] > n.y[i] ? n.x[i] : n.y[i]; });
    expect("absolute", absolute(x), [&](int i) { return std::fabs(n.x[i]); });
    expect("where_greater", where_greater(x, y, small, x), [&](int i) { return n.x[i] > n.y[i] ? n.small[i] : n.x[i]; });
    expect("round_to_even", round_to_even(small), [&](int i) { return std::nearbyint(n.small[i]); });
    const Vec power = minimum(maximum(round_to_even(small), broadcast(-149.0f)), broadcast(127.0f));
    float powers[kCount];
    store(powers, power);
    expect("times_power_of_two", times_power_of_two(broadcast(1.25f), power),
           [&](int i) { return std::ldexp(1.25f, static_cast<int>(powers[i])); });
    expect("load_bf16", load_bf16(n.halves), [&](int i) { return of_bf16(n.halves[i]); });
    expect("load_fp16", load_fp16(n.halves), [&](int i) { return of_fp16(n.halves[i]); });
    expect("firsts", firsts(load_pairs(n.halves)), [&](int i) { return of_bf16(n.halves[2 * i]); });
    expect("seconds", seconds(load_pairs(n.halves)), [&](int i) { return of_bf16(n.halves[2 * i + 1]); });
    uint16_t bf16[kCount], fp16[kCount];
    store_bf16(bf16, x);
    store_fp16(fp16, x);
    for (int i = 0; i < kCount; ++i) {
        const bool is_denormal = std::fpclassify(n.x[i]) == FP_SUBNORMAL;  // and may have become zero
        const bool is_zero = is_denormal && of_bf16(bf16[i]) == 0.0f;
        if (!is_zero && !is_nearest(n.x[i], bf16[i], of_bf16)) fail("store_bf16", i);
        if (!is_nearest(n.x[i], fp16[i], of_fp16)) fail("store_fp16", i);
    }
    double total = 0;
    float most = n.small[0];
    for (float each : n.small) total += each, most = each > most ? each : most;
    if (sum(small) != static_cast<float>(total)) fail("sum", 0);
    if (largest(small) != most) fail("largest", 0);
    for (int count = 1; count < kCount; ++count) {
        const Vec first = load(n.x, FirstLanes{count});
        expect("load of the first lanes", first, [&](int i) { return i < count ? n.x[i] : 0.0f; });
        float kept[kCount];
        std::memcpy(kept, n.y, sizeof kept);
        store(kept, x, FirstLanes{count});
        expect("store of the first lanes", load(kept), [&](int i) { return i < count ? n.x[i] : n.y[i]; });
        expect("within", within(x, y, count - 2, count), [&](int i) { return i >= count - 2 && i < count ? n.x[i] : n.y[i]; });
    }
    expect("swap_neighbours", swap_neighbours(x), [&](int i) { return n.x[i ^ 1]; });
    const Vec four[4] = {small, small + small, zero() - small, small * broadcast(3.0f)};
    float sums[4];
    store_sums(sums, four);
    for (int i = 0; i < 4; ++i)
        if (sums[i] != sum(four[i])) fail("store_sums", i);
}

// Rows of every length are added up in 16 lanes: one order for all instruction sets.
void check_wide_sums(const Numbers& n) {
    for (int count = 0; count <= 45; ++count) {
        float sums[16] = {}, squares[16] = {};
        for (int i = 0; i < count; ++i) {
            sums[i % 16] += n.row[i];
            squares[i % 16] = std::fma(n.row[i], n.row[i], squares[i % 16]);
        }
        for (int half = 8; half > 0; half /= 2)
            for (int i = 0; i < half; ++i) sums[i] += sums[i + half], squares[i] += squares[i + half];
        if (!same(sum_of(n.row, count), sums[0])) fail("sum_of", count);
        if (!same(sum_of_squares(n.row, count), squares[0])) fail("sum_of_squares", count);
    }
}

int32_t dot_of(const uint8_t* u, const int8_t* s) {
    int32_t total = 0;
    for (int j = 0; j < 4; ++j) total += u[j] * s[j];
    return total;
}

void check_integers(const Numbers& n) {
    const Ints shorts = load_int16(n.shorts), bytes = load_uint8(n.u);
    const Vec small = load(n.small);
    expect("load_int16", shorts, [&](int i) { return n.shorts[i]; });
    expect("load_uint8", bytes, [&](int i) { return n.u[i]; });
    expect("integer sums", shorts + bytes - broadcast_int(7), [&](int i) { return n.shorts[i] + n.u[i] - 7; });
    expect("integer products", shorts * bytes, [&](int i) { return n.shorts[i] * n.u[i]; });
    expect("shift_left", shift_left(bytes, 16), [&](int i) { return n.u[i] << 16; });
    expect("integer maximum", maximum(shorts, bytes), [&](int i) { return n.shorts[i] > n.u[i] ? n.shorts[i] : n.u[i]; });
    expect("to_float", to_float(shorts), [&](int i) { return static_cast<float>(n.shorts[i]); });
    expect("round_to_int", round_to_int(small), [&](int i) { return static_cast<int32_t>(std::nearbyint(n.small[i])); });
    int32_t total = 0, most = n.shorts[0];
    for (int16_t each : n.shorts) total += each, most = each > most ? each : most;
    if (sum(shorts) != total || largest(shorts) != most) fail("sum or largest of integers", 0);
    int8_t packed[kCount];
    store_int8(packed, shorts);
    for (int i = 0; i < kCount; ++i)
        if (n.shorts[i] >= -128 && n.shorts[i] <= 127 && packed[i] != n.shorts[i]) fail("store_int8", i);

    const Bytes u = load_bytes(n.u);
    expect("low_nibbles", low_nibbles(u), [&](int i) { return n.u[i] & 15; });
    expect("high_nibbles", high_nibbles(u), [&](int i) { return n.u[i] >> 4; });
    expect("look_up", look_up(load_table(n.s), low_nibbles(u)), [&](int i) { return n.s[n.u[i] & 15]; });
    expect("keep_bits", keep_bits(shifted<2>(u), 0xfc), [&](int i) { return n.u[i] << 2; });
    expect("keep_bits to the right", keep_bits(shifted<-3>(u), 0x1f), [&](int i) { return n.u[i] >> 3; });
    expect("join_bits", join_bits(u, low_nibbles(u)), [&](int i) { return n.u[i]; });
    expect("flip_bits", flip_bits(u, 0x80), [&](int i) { return n.u[i] ^ 0x80; });
    expect("dot", dot(shorts, u, broadcast_inputs(n.s)), [&](int i) { return n.shorts[i] + dot_of(n.u + 4 * i, n.s); });

    const Ints pairs = load_int8_pairs(n.s);
    expect("high_halves", high_halves(pairs), [&](int i) { return n.s[2 * i + 1]; });
    expect("add_pair_products", add_pair_products(shorts, pairs, word_of(-300, 7)),
           [&](int i) { return n.shorts[i] - 300 * n.s[2 * i] + 7 * n.s[2 * i + 1]; });
    expect("merged", WidePartials::merged(shorts, bytes, WidePartials::first_scale(pairs)),
           [&](int i) { return n.shorts[i] + n.u[i] * n.s[2 * i]; });
    int32_t firsts = 0, others = 0;
    for (int i = 0; i < 16; ++i) (i % 4 < 2 ? firsts : others) += n.s[i];
    const int32_t halves = sum_in_halves(n.s);
    if (low_half(halves) != firsts || high_half(halves) != others) fail("sum_in_halves", 0);
}

void check_quads(const Numbers& n) {
    const Quads u = load_quads(n.u), s = load_quads(n.s);
    int32_t words[kCount];
    std::memcpy(words, n.u, sizeof words);
    const auto products = [&](int i) { return dot_of(n.u + 4 * i, n.s + 4 * i); };
#if defined(PENSTOCK_MULTIPLIES_PAIRS)
    const Quads even = dot_pairs(zero_quads(), even_bytes(u), even_signed_bytes(s));
    expect("dot_pairs", dot_pairs(even, odd_bytes(u), odd_signed_bytes(s)), products);
#else
    expect("dot of quads", dot(zero_quads(), u, s), products);
#endif
    expect("nibbles of quads", join_planes(zero_quads(), low_nibbles(u)), [&](int i) { return words[i] & 0x0f0f0f0f; });
    expect("high nibbles of quads", high_nibbles(u), [&](int i) { return words[i] >> 4 & 0x0f0f0f0f; });
    expect("first_of_pairs", first_of_pairs(u), [&](int i) { return of_bf16(static_cast<uint16_t>(words[i])); });
    expect("second_of_pairs", second_of_pairs(u), [&](int i) { return of_bf16(static_cast<uint16_t>(words[i] >> 16)); });
    expect("only_first_of_pairs", only_first_of_pairs(u), [&](int i) { return words[i] & 0xffff; });
    expect("minus", minus(only_first_of_pairs(u), 70000), [&](int i) { return (words[i] & 0xffff) - 70000; });
    expect("quads to float", to_float(only_first_of_pairs(u)), [&](int i) { return static_cast<float>(words[i] & 0xffff); });
    uint8_t high[kCount], low[kCount];
    store_planes(high, low, to_float(only_first_of_pairs(u)));
    int8_t small[kCount];
    float whole[kCount];
    for (int i = 0; i < kCount; ++i) whole[i] = n.s[i];
    store_signed_bytes(small, load(whole));
    for (int i = 0; i < kCount; ++i) {
        if (high[i] * 256 + low[i] != (words[i] & 0xffff)) fail("store_planes", i);
        if (small[i] != n.s[i]) fail("store_signed_bytes", i);
    }
}

}  // namespace

int main() {
    std::mt19937 random(1);
    for (; round_number < 2000; ++round_number) {
        const Numbers numbers(random);
        check_floats(numbers);
        check_wide_sums(numbers);
        check_integers(numbers);
        check_quads(numbers);
    }
    std::puts("ok");
    return 0;
}
