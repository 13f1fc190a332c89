/* Preloaded, it fails or kills the process at the n-th call of libc on files after `faults_arm`.
   tests/helpers/libc_faults.py uses it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>

extern int getpid(void), kill(int, int);

static long left = -1; /* calls before the fault; negative: none comes */
static int fault;

/* `error`: an errno, or 0 for SIGKILL. */
void faults_arm(long number, int error) { left = number, fault = error; }
int faults_fired(void) { return left < 0; }

static int fails(void) {
    if (left < 0 || left-- > 0) return 0;
    if (fault == 0) kill(getpid(), 9);
    errno = fault;
    return 1;
}

typedef intptr_t word; /* numbers and pointers alike: a call passes each in a register */
#define CALL(type, name, failed, parameters, arguments)                \
    type name parameters {                                             \
        static type(*next) parameters;                                 \
        if (!next) next = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
        return fails() ? failed : next arguments;                      \
    }
#define ONE(type, name, failed) CALL(type, name, failed, (word a), (a))
#define TWO(name) CALL(int, name, -1, (word a, word b), (a, b))
#define THREE(type, name) CALL(type, name, -1, (word a, word b, word c), (a, b, c))
#define FOUR(name) CALL(int, name, -1, (word a, word b, word c, word d), (a, b, c, d))

THREE(int, open) THREE(int, open64) FOUR(openat) FOUR(openat64) ONE(int, close, -1)
THREE(word, read) THREE(word, write) THREE(word, lseek) THREE(word, lseek64) THREE(word, readlink)
ONE(int, fsync, -1) ONE(int, fdatasync, -1) TWO(ftruncate) TWO(ftruncate64)
TWO(rename) FOUR(renameat) ONE(int, unlink, -1) THREE(int, unlinkat) TWO(mkdir) THREE(int, mkdirat) ONE(int, rmdir, -1)
TWO(stat) TWO(stat64) TWO(lstat) TWO(lstat64) TWO(fstat) TWO(fstat64) FOUR(fstatat) FOUR(fstatat64)
ONE(word, opendir, 0) ONE(word, fdopendir, 0) ONE(word, readdir, 0) ONE(word, readdir64, 0)
