/* A full disk and a clock that jumps, for the processes that load this (LD_PRELOAD), without root.
 *
 * CHAOS_CONTROL names a file of two 64-bit integers that all of them map: seconds that the wall clock is wrong by, and
 * whether the disk is full. CHAOS_DISK names the folders that are the disk, each with a colon before it. A full disk takes no new bytes: a write that
 * would make a file longer is cut in half once, as the last blocks are given away, and refused with ENOSPC after that;
 * writing over old bytes and deleting go on. The monotonic clock is left alone, as it is when somebody sets the time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *control; /* [0] seconds, [1] full */
static const char *disk;
static int given; /* the last blocks */

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CONTROL");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    disk = getenv("CHAOS_DISK");
    if (file < 0) return;
    void *mapped = mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) control = mapped;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int on_disk(const char *path) {
    for (const char *at = disk; at && *at == ':'; at = strchr(at + 1, ':')) {
        size_t length = strcspn(at + 1, ":");
        if (!strncmp(path, at + 1, length) && (!path[length] || path[length] == '/')) return 1;
    }
    return 0;
}

/* Whether `end` is beyond what the file has already, and the file lies on the full disk. */
static int refused(int file, off_t end) {
    char link[40] = "/proc/self/fd/", path[PATH_MAX];
    struct stat stat;
    if (!control || !control[1]) return 0;
    int saved = errno, number = file, digits = 1;
    for (int rest = file; rest >= 10; rest /= 10) digits++;
    for (int at = 13 + digits; at > 13; at--, number /= 10) link[at] = '0' + number % 10;
    link[14 + digits] = 0;
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length < 0) return 0;
    path[length] = 0;
    if (!on_disk(path) || fstat(file, &stat) || !S_ISREG(stat.st_mode)) return 0;
    return end > stat.st_size;
}

static off_t here(int file) {
    int flags = fcntl(file, F_GETFL);
    return lseek(file, 0, flags >= 0 && (flags & O_APPEND) ? SEEK_END : SEEK_CUR);
}

static int last_blocks(size_t size) { return size > 1 && !__sync_lock_test_and_set(&given, 1); }
static ssize_t full(void) { errno = ENOSPC; return -1; }

ssize_t write(int file, const void *bytes, size_t size) {
    if (refused(file, here(file) + size)) return last_blocks(size) ? REAL(write)(file, bytes, size / 2) : full();
    return REAL(write)(file, bytes, size);
}
ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) {
    return refused(file, at + size) ? full() : REAL(pwrite)(file, bytes, size, at);
}
ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at) {
    return refused(file, at + size) ? full() : REAL(pwrite64)(file, bytes, size, at);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    size_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    return refused(file, here(file) + size) ? full() : REAL(writev)(file, parts, count);
}
ssize_t sendfile(int out, int in, off_t *at, size_t size) {
    return refused(out, here(out) + 1) ? full() : REAL(sendfile)(out, in, at, size);
}
ssize_t sendfile64(int out, int in, off64_t *at, size_t size) {
    return refused(out, here(out) + 1) ? full() : REAL(sendfile64)(out, in, at, size);
}
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    off_t at = to ? *to : here(out);
    return refused(out, at + 1) ? full() : REAL(copy_file_range)(in, from, out, to, size, flags);
}
int ftruncate(int file, off_t size) { return refused(file, size) ? (int)full() : REAL(ftruncate)(file, size); }
int ftruncate64(int file, off64_t size) { return refused(file, size) ? (int)full() : REAL(ftruncate64)(file, size); }
int posix_fallocate(int file, off_t at, off_t size) {
    return refused(file, at + size) ? ENOSPC : REAL(posix_fallocate)(file, at, size);
}
int posix_fallocate64(int file, off64_t at, off64_t size) {
    return refused(file, at + size) ? ENOSPC : REAL(posix_fallocate64)(file, at, size);
}

/* Free blocks of the full disk: none. */
int statvfs(const char *restrict path, struct statvfs *restrict found) {
    int code = REAL(statvfs)(path, found);
    if (!code && control && control[1] && on_disk(path)) found->f_bavail = found->f_bfree = 0;
    return code;
}
int statvfs64(const char *restrict path, struct statvfs64 *restrict found) {
    int code = REAL(statvfs64)(path, found);
    if (!code && control && control[1] && on_disk(path)) found->f_bavail = found->f_bfree = 0;
    return code;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int code = REAL(clock_gettime)(clock, now);
    if (!code && control && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += control[0];
    return code;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int code = REAL(gettimeofday)(now, zone);
    if (!code && control) now->tv_sec += control[0];
    return code;
}
time_t time(time_t *to) {
    time_t now = REAL(time)(NULL) + (control ? control[0] : 0);
    if (to) *to = now;
    return now;
}
