// Blocks of codes of 5 and 6 bits: Q5_0, Q5_1, Q5_K, Q6_K.
#include "block_kernels.hpp"

namespace penstock {

const BlockKernels kQ5_0Kernels = KernelsOf<Q5_0, ReadQ5_0>::kernels();
const BlockKernels kQ5_1Kernels = KernelsOf<Q5_1, ReadQ5_1>::kernels();
const BlockKernels kQ5KKernels = KernelsOf<Q5K, ReadQ5K>::kernels();
const BlockKernels kQ6KKernels = KernelsOf<Q6K, ReadQ6K>::kernels();

}  // namespace penstock
