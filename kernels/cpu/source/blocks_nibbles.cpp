// Blocks of 4-bit codes: Q4_0, Q4_1, Q4_K, and Q2_K and Q3_K, whose codes have fewer bits.
#include "block_kernels.hpp"

namespace penstock {

const BlockKernels kQ4_0Kernels = KernelsOf<Q4_0, ReadQ4_0>::kernels();
const BlockKernels kQ4_1Kernels = KernelsOf<Q4_1, ReadQ4_1>::kernels();
const BlockKernels kQ4KKernels = KernelsOf<Q4K, ReadQ4K>::kernels();
const BlockKernels kQ2KKernels = KernelsOf<Q2K, NoReader>::kernels();
const BlockKernels kQ3KKernels = KernelsOf<Q3K, NoReader>::kernels();

}  // namespace penstock
