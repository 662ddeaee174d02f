/* Fails the n-th file operation below a folder; tools/fault_injection.py preloads it.

Operations are: opening for writing, writing, truncating, syncing, renaming, unlinking, and making
or removing folders. Of the writes to one opened file the first, second, fourth, eighth ... count.
The state lies in a file that forked and spawned processes share. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct state {
    long operations; /* so far */
    long failing;    /* the operation that fails; 0: none */
    long error;      /* errno; 0: the process is killed */
    char folder[PATH_MAX];
    char failed[2 * PATH_MAX]; /* name and path of the failed operation */
};
static struct state *shared;
static long writes[65536]; /* by file descriptor, since it was opened */

__attribute__((constructor)) static void map_state(void) {
    const char *path = getenv("FAULT_STATE");
    int (*open_)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int fd = path ? open_(path, O_RDWR) : -1;
    if (fd < 0) return;
    void *found = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found != MAP_FAILED) shared = found;
}

/* Whether this operation fails. A full disk stays full: what needs room fails from then on. */
static int fails(const char *operation, const char *path, int needs_room) {
    size_t length = shared ? strlen(shared->folder) : 0;
    if (!length || strncmp(path, shared->folder, length)) return 0;
    if (path[length] && path[length] != '/') return 0;
    long number = __atomic_add_fetch(&shared->operations, 1, __ATOMIC_SEQ_CST);
    if (!shared->failing || number < shared->failing) return 0;
    if (number > shared->failing && !(shared->error == ENOSPC && needs_room)) return 0;
    if (number == shared->failing) {
        snprintf(shared->failed, sizeof shared->failed, "%s %s", operation, path + length);
        if (!shared->error) kill(getpid(), SIGKILL);
    }
    errno = (int)shared->error;
    return 1;
}

static void path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
}

static void join(int folder, const char *name, char *path) {
    path[0] = 0;
    if (name[0] != '/') {
        if (folder == AT_FDCWD) {
            if (!getcwd(path, PATH_MAX)) path[0] = 0;
        } else {
            path_of(folder, path);
        }
        strncat(path, "/", PATH_MAX - strlen(path) - 1);
    }
    strncat(path, name, PATH_MAX - strlen(path) - 1);
}

static int fails_name(const char *operation, int folder, const char *name, int needs_room) {
    char path[PATH_MAX];
    join(folder, name, path);
    return fails(operation, path, needs_room);
}

static int fails_file(const char *operation, int fd, int needs_room) {
    char path[PATH_MAX];
    path_of(fd, path);
    return fails(operation, path, needs_room);
}

static int fails_write(int fd) {
    if (!shared || fd < 0 || fd >= 65536) return 0;
    long count = ++writes[fd];
    int is_full = shared->error == ENOSPC && shared->failing && shared->operations >= shared->failing;
    return (is_full || !(count & (count - 1))) && fails_file("write", fd, 1);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int open_at(const char *name, int folder, const char *path, int flags, mode_t mode) {
    int (*open_)(int, const char *, int, ...) = dlsym(RTLD_NEXT, name);
    int writing = (flags & O_ACCMODE) != O_RDONLY;
    if (writing && fails_name("open", folder, path, flags & O_CREAT)) return -1;
    int fd = open_(folder, path, flags, mode);
    if (fd >= 0 && fd < 65536) writes[fd] = 0;
    return fd;
}

#define MODE                                  \
    va_list rest;                             \
    va_start(rest, flags);                    \
    mode_t mode = (mode_t)va_arg(rest, int);  \
    va_end(rest)

int open(const char *path, int flags, ...) {
    MODE;
    return open_at("openat", AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE;
    return open_at("openat64", AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    MODE;
    return open_at("openat", folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
    MODE;
    return open_at("openat64", folder, path, flags, mode);
}
FILE *fopen(const char *path, const char *mode) {
    if (strpbrk(mode, "wa+") && fails_name("open", AT_FDCWD, path, 1)) return NULL;
    return NEXT(fopen)(path, mode);
}
FILE *fopen64(const char *path, const char *mode) {
    if (strpbrk(mode, "wa+") && fails_name("open", AT_FDCWD, path, 1)) return NULL;
    return NEXT(fopen64)(path, mode);
}
ssize_t write(int fd, const void *content, size_t size) {
    return fails_write(fd) ? -1 : NEXT(write)(fd, content, size);
}
ssize_t writev(int fd, const struct iovec *pieces, int count) {
    return fails_write(fd) ? -1 : NEXT(writev)(fd, pieces, count);
}
ssize_t pwrite(int fd, const void *content, size_t size, off_t place) {
    return fails_write(fd) ? -1 : NEXT(pwrite)(fd, content, size, place);
}
ssize_t pwrite64(int fd, const void *content, size_t size, off64_t place) {
    return fails_write(fd) ? -1 : NEXT(pwrite64)(fd, content, size, place);
}
int ftruncate(int fd, off_t size) {
    return fails_file("truncate", fd, 0) ? -1 : NEXT(ftruncate)(fd, size);
}
int ftruncate64(int fd, off64_t size) {
    return fails_file("truncate", fd, 0) ? -1 : NEXT(ftruncate64)(fd, size);
}
int fsync(int fd) { return fails_file("sync", fd, 0) ? -1 : NEXT(fsync)(fd); }
int fdatasync(int fd) { return fails_file("sync", fd, 0) ? -1 : NEXT(fdatasync)(fd); }
int rename(const char *old, const char *new) {
    return fails_name("rename", AT_FDCWD, new, 0) ? -1 : NEXT(rename)(old, new);
}
int renameat(int from, const char *old, int to, const char *new) {
    return fails_name("rename", to, new, 0) ? -1 : NEXT(renameat)(from, old, to, new);
}
int unlink(const char *path) {
    return fails_name("unlink", AT_FDCWD, path, 0) ? -1 : NEXT(unlink)(path);
}
int unlinkat(int folder, const char *path, int flags) {
    return fails_name("unlink", folder, path, 0) ? -1 : NEXT(unlinkat)(folder, path, flags);
}
int rmdir(const char *path) {
    return fails_name("rmdir", AT_FDCWD, path, 0) ? -1 : NEXT(rmdir)(path);
}
int mkdir(const char *path, mode_t mode) {
    return fails_name("mkdir", AT_FDCWD, path, 1) ? -1 : NEXT(mkdir)(path, mode);
}
int mkdirat(int folder, const char *path, mode_t mode) {
    return fails_name("mkdir", folder, path, 1) ? -1 : NEXT(mkdirat)(folder, path, mode);
}
