// The natural logarithm by sums, products and quotients of float64 alone: a library's differs from one release to the next.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace penstock {

// ln x to 2 units in the last place: -inf for 0, NaN for NaN; of numbers below 0 or denormal nobody asks.
//
//     x = f × 2^p, f in [√½, √2);  ln f = 2 (s + s³/3 + s⁵/5 + …) with s = (f - 1) / (f + 1), so |s| < 0.172
inline double natural_logarithm(double x) {
    constexpr uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd;
    constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
    if (x == 0) return -INFINITY;
    if (!(x < INFINITY)) return x;
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const int64_t power = static_cast<int64_t>(bits - kRootOfHalf) >> 52;
    bits -= static_cast<uint64_t>(power) << 52;
    double fraction;
    std::memcpy(&fraction, &bits, sizeof fraction);
    const double s = (fraction - 1) / (fraction + 1), square = s * s;
    double series = 0;
    for (int n = 23; n >= 3; n -= 2) series = (series + 1.0 / n) * square;
    const double p = static_cast<double>(power);
    return p * kLn2High + (2 * s + (2 * s * series + p * kLn2Low));
}

}  // namespace penstock
