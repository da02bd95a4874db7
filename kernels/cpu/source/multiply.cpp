// output = x × y, number by number; y may be some columns of wider rows.
//
// One pass; the quantized form follows while the row is still in the cache.
#include "quantize.hpp"
#include "rows.hpp"
#include "step.hpp"
#include "vector.hpp"

namespace penstock {

struct Multiply {
    const int32_t* num_rows;
    const float* x;  // [rows, width]
    const float* y;  // [rows, y_stride]
    int64_t y_stride;
    int64_t width;
    float* output;  // [rows, width]
    Quantized quantized;
};

static void multiply_rows(const Multiply& multiply) {
    const int64_t width = multiply.width;
    over_rows(*multiply.num_rows, width, [&](int64_t row) {
        const float* x = multiply.x + row * width;
        const float* y = multiply.y + row * multiply.y_stride;
        float* output = multiply.output + row * width;
        over_lanes(width, [&](int64_t i, auto lanes) {
            store(output + i, load(x + i, lanes) * load(y + i, lanes), lanes);
        });
        if (multiply.quantized.values) quantize_row(output, width, multiply.quantized, row);
    });
}

}  // namespace penstock

extern "C" void penstock_multiply(const void* arguments) {
    penstock::multiply_rows(*static_cast<const penstock::Multiply*>(arguments));
}
