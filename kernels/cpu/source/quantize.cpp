// Rows of float32 as 8-bit integers, where no operation before could write them so itself.
#include "quantize.hpp"

#include "rows.hpp"

namespace penstock {

struct Quantize {
    const int32_t* num_rows;
    const float* input;  // [rows, width]
    int64_t width;
    Quantized quantized;
};

static void quantize(const Quantize& arguments) {
    over_rows(*arguments.num_rows, arguments.width, [&](int64_t row) {
        quantize_row(arguments.input + row * arguments.width, arguments.width, arguments.quantized, row);
    });
}

}  // namespace penstock

extern "C" void penstock_quantize(const void* arguments) {
    penstock::quantize(*static_cast<const penstock::Quantize*>(arguments));
}
