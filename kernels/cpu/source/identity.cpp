// What a library was compiled from: found in its bytes before it is loaded, so that an outdated one never is.
//
// PENSTOCK_DIGEST comes from the build: a digest of all sources and of the flags.

extern "C" const char penstock_identity[] = "penstock sources " PENSTOCK_DIGEST;
