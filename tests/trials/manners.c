/* A shared file system's locks as one host sees them, for the processes that load this (LD_PRELOAD), without root.
 *
 * LOCKS_HOST names the host, LOCKS_FOLDER a folder that all hosts share, with <host>.boot_id, which is read in place of
 * the kernel's. LOCKS_MANNER says how flock() behaves:
 *   cluster  every host sees every lock
 *   nfs      so too, but locks are byte-range locks: an exclusive one wants a file open for writing
 *   node     a host sees its own: they are locks of files of its own, in LOCKS_FOLDER
 *   none     there are no locks
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FILES 4096

static const char *host, *folder, *manner = "";
static int shadows[FILES]; /* descriptor -> that of the host's own file, plus one */

__attribute__((constructor)) static void begin(void) {
    host = getenv("LOCKS_HOST");
    folder = getenv("LOCKS_FOLDER");
    if (host && folder && getenv("LOCKS_MANNER")) manner = getenv("LOCKS_MANNER");
}

static int refused(int error) { errno = error; return -1; }

static int shadow(int file) {
    char path[PATH_MAX];
    struct stat stat;
    if (file < 0 || file >= FILES || fstat(file, &stat)) return refused(EBADF);
    if (!shadows[file]) {
        snprintf(path, sizeof path, "%s/%s-%lu-%lu", folder, host, (unsigned long)stat.st_dev, (unsigned long)stat.st_ino);
        int own = REAL(open)(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (own < 0) return -1;
        shadows[file] = own + 1;
    }
    return shadows[file] - 1;
}

int flock(int file, int operation) {
    int mode = fcntl(file, F_GETFL);
    if (mode < 0) return -1;
    if (!strcmp(manner, "none")) return refused(ENOLCK);
    if (!strcmp(manner, "nfs")) {
        if ((operation & LOCK_EX) && (mode & O_ACCMODE) == O_RDONLY) return refused(EBADF);
        if ((operation & LOCK_SH) && (mode & O_ACCMODE) == O_WRONLY) return refused(EBADF);
    }
    if (!strcmp(manner, "node") && (file = shadow(file)) < 0) return -1;
    return REAL(flock)(file, operation);
}

int close(int file) {
    if (file >= 0 && file < FILES && shadows[file]) {
        int own = shadows[file] - 1;
        shadows[file] = 0;
        REAL(close)(own);
    }
    return REAL(close)(file);
}

static int opened(const char *path, int flags, int mode) {
    char own[PATH_MAX];
    if (*manner && !strcmp(path, "/proc/sys/kernel/random/boot_id")) {
        snprintf(own, sizeof own, "%s/%s.boot_id", folder, host);
        path = own;
    }
    return REAL(open)(path, flags, mode);
}

#define MODE(flags) \
    va_list more; \
    va_start(more, flags); \
    int mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, int) : 0; \
    va_end(more)
int open(const char *path, int flags, ...) { MODE(flags); return opened(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags); return opened(path, flags, mode); }
