#include "locate_cage.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__has_include)
#if __has_include(<linux/landlock.h>)
#include <linux/landlock.h>
#endif
#endif

#define NOBODY       65534
#define MOST_ADDRESS (1ull << 32) /* bytes of address space */

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* Users */

static void become_nobody (void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    bool good = geteuid () == 0 && setgroups (0, NULL) == 0 && setresgid (NOBODY, NOBODY, NOBODY) == 0 &&
                setresuid (NOBODY, NOBODY, NOBODY) == 0;
    (void) good; /* in a namespace of users there may be no such one */
    (void) syscall (SYS_capset, &header, none);
}

static void limit (void)
{
    struct rlimit none = {0, 0}, address = {MOST_ADDRESS, MOST_ADDRESS};
    (void) prctl (PR_SET_PDEATHSIG, SIGKILL); /* each of these only helps; who became another user asks for it anew */
    (void) prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void) prctl (PR_SET_DUMPABLE, 0);
    (void) setrlimit (RLIMIT_CORE, &none);
    (void) setrlimit (RLIMIT_FSIZE, &none);
    (void) setrlimit (RLIMIT_AS, &address);
}

/* Files */

#ifdef LANDLOCK_ACCESS_FS_EXECUTE

/* All that the first version of Landlock knows, and what later ones added. */
static uint64_t all_accesses (int version)
{
    uint64_t all = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
    all |= version >= 2 ? 1ull << 13 : 0; /* into another directory, */
    all |= version >= 3 ? 1ull << 14 : 0; /* to cut, */
    all |= version >= 5 ? 1ull << 15 : 0; /* ioctl on devices */
    return all;
}

static bool close_files (void)
{
    /* Names of hosts are looked up there. /run: where resolv.conf may be a link to. */
    static const char *const readable[] = {
        "/etc", "/lib", "/lib64", "/usr", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf"};
    long version = syscall (SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1)
        return false;
    struct landlock_ruleset_attr rules = {.handled_access_fs = all_accesses ((int) version)};
    int fd = (int) syscall (SYS_landlock_create_ruleset, &rules, sizeof rules.handled_access_fs, 0);
    bool good = fd >= 0;
    for (unsigned i = 0; good && i < sizeof readable / sizeof *readable; i++) {
        int directory = open (readable[i], O_PATH | O_CLOEXEC);
        struct landlock_path_beneath_attr rule = {
            .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR, .parent_fd = directory};
        if (directory < 0)
            continue; /* there is no such one here */
        good = syscall (SYS_landlock_add_rule, fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
        (void) close (directory); /* nothing was written, as to the next */
    }
    good = good && syscall (SYS_landlock_restrict_self, fd, 0) == 0;
    if (fd >= 0)
        (void) close (fd);
    return good;
}

#else

static bool close_files (void)
{
    return false;
}

#endif

/* System calls */

#ifdef ARCHITECTURE

/* Arguments that are looked at: those whose bits of @mask are @value. @mask 0: any. */
typedef struct Argument {
    unsigned index;
    uint32_t mask, value;
} Argument;

typedef struct Call {
    int number;
    Argument first, second;
} Call;

#define READS_ONLY (O_ACCMODE | O_CREAT | O_TRUNC)
#define ALL        UINT32_MAX

/* clone3 hides what it is asked for: libc then takes clone. */
static const int always[] = {
#ifdef SYS_rseq
    SYS_rseq,
#endif
#ifdef __x86_64__
    SYS_poll,
    SYS_select,
    SYS_epoll_wait,
    SYS_access,
    SYS_stat,
    SYS_lstat,
    SYS_readlink,
    SYS_time,
#endif
    SYS_futex,
    SYS_recvfrom,
    SYS_sendto,
    SYS_pselect6,
    SYS_read,
    SYS_write,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_ppoll,
    SYS_close,
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_bind,
    SYS_connect,
    SYS_getsockname,
    SYS_getpeername,
    SYS_setsockopt,
    SYS_getsockopt,
    SYS_shutdown,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_uname,
    SYS_sysinfo,
    SYS_sched_yield,
    SYS_getcpu,
    SYS_sched_getaffinity,
    SYS_set_robust_list,
    SYS_membarrier,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
    SYS_pipe2,
    SYS_eventfd2,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait};

/* The kind of a socket is in the lowest bits. */
#define SOCKET(domain, kind)                                                                                           \
    {                                                                                                                  \
        .number = SYS_socket, .first = {0, ALL, domain}, .second = { 1, 15, kind }                                     \
    }

static const Call calls[] = {
    {.number = SYS_fcntl, .first = {1, ALL, F_GETFL}},
    {.number = SYS_fcntl, .first = {1, ALL, F_SETFL}},
    {.number = SYS_fcntl, .first = {1, ALL, F_GETFD}},
    {.number = SYS_fcntl, .first = {1, ALL, F_SETFD}},
    {.number = SYS_ioctl, .first = {1, ALL, FIONREAD}},
    {.number = SYS_ioctl, .first = {1, ALL, FIONBIO}},
    {.number = SYS_openat, .first = {2, READS_ONLY, 0}},
    {.number = SYS_clone, .first = {0, CLONE_THREAD, CLONE_THREAD}},
    {.number = SYS_prctl, .first = {0, ALL, PR_SET_NAME}},
    {.number = SYS_prlimit64, .first = {0, ALL, 0}, .second = {2, ALL, 0}}, /* looks at our own */
    SOCKET (AF_INET, SOCK_DGRAM),
    SOCKET (AF_INET6, SOCK_DGRAM),
    SOCKET (AF_NETLINK, SOCK_RAW), /* which addresses there are */
};

#define N_ALWAYS       (sizeof always / sizeof *always)
#define N_CALLS        (sizeof calls / sizeof *calls)
#define MOST_OF_A_CALL 10

static unsigned add_argument (struct sock_filter *at, const Argument *argument, unsigned jump)
{
    /* The lower half of it. */
    uint32_t offset = (uint32_t) (offsetof (struct seccomp_data, args) + argument->index * sizeof (uint64_t));
    if (argument->mask == 0)
        return 0;
    at[0] = (struct sock_filter) BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offset);
    at[1] = (struct sock_filter) BPF_STMT (BPF_ALU | BPF_AND | BPF_K, argument->mask);
    at[2] = (struct sock_filter) BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, argument->value, 0, (uint8_t) jump);
    return 3;
}

/* Begins and ends with the number of the call in the register; returns how many instructions. */
static unsigned add_call (struct sock_filter *at, const Call *call)
{
    unsigned n_first = call->first.mask == 0 ? 0 : 3, n_second = call->second.mask == 0 ? 0 : 3;
    unsigned n = 1, n_all = n_first + n_second, n_again = n_all > 0 ? 1 : 0;
    at[0] = (struct sock_filter) BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, (uint32_t) call->number, 0,
                                           (uint8_t) (n_all + 1 + n_again));
    n += add_argument (at + n, &call->first, n_second + 1);
    n += add_argument (at + n, &call->second, 1);
    at[n++] = (struct sock_filter) BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    if (n_again > 0)
        at[n++] = (struct sock_filter) BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offsetof (struct seccomp_data, nr));
    return n;
}

/* ENOSYS, so that a newer libc than this list takes an older call. */
static bool close_calls (void)
{
    static struct sock_filter filter[(N_ALWAYS + N_CALLS) * MOST_OF_A_CALL + 8];
    unsigned n = 0;
    filter[n++] = (struct sock_filter) BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offsetof (struct seccomp_data, arch));
    filter[n++] = (struct sock_filter) BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    filter[n++] = (struct sock_filter) BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    filter[n++] = (struct sock_filter) BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offsetof (struct seccomp_data, nr));
    for (unsigned i = 0; i < N_ALWAYS; i++)
        n += add_call (filter + n, &(Call){.number = always[i]});
    for (unsigned i = 0; i < N_CALLS; i++)
        n += add_call (filter + n, &calls[i]);
    filter[n++] = (struct sock_filter) BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    struct sock_fprog program = {.len = (unsigned short) n, .filter = filter};
    return prctl (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

#else

static bool close_calls (void)
{
    return false;
}

#endif

EcfsCage ecfs_cage_enter (void)
{
    become_nobody ();
    limit ();
    EcfsCage cage = {.files = close_files ()};
    cage.calls = close_calls ();
    return cage;
}
