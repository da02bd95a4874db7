// Asks the system for tiles as the library is loaded: their registers are large, and a process gets them on request.
#if defined(__AMX_TILE__)
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA

[[gnu::constructor]] void request_tiles() { syscall(SYS_arch_prctl, kRequestPermission, kTileData); }

}  // namespace
#endif
