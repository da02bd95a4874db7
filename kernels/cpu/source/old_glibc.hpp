// Names of glibc's functions as its older releases have them, so that a library compiled here loads on a system of 2018.
//
// glibc 2.34 renamed the threads' functions when they moved into libc, which still answers to the names before.
#pragma once
#include <features.h>

#if defined(__GLIBC__) && defined(__x86_64__)
asm(".symver pthread_create, pthread_create@GLIBC_2.2.5\n"
    ".symver pthread_detach, pthread_detach@GLIBC_2.2.5\n"
    ".symver pthread_key_create, pthread_key_create@GLIBC_2.2.5\n"
    ".symver pthread_setname_np, pthread_setname_np@GLIBC_2.12\n"
    ".symver pthread_setspecific, pthread_setspecific@GLIBC_2.2.5\n"
    ".symver pthread_sigmask, pthread_sigmask@GLIBC_2.2.5");
#endif
