/* Probes of the ways that others were found to leave by: the new mount calls, namespaces by descriptor,
 * what was inherited, the init's memory, other kinds of sockets, and what a user shares over namespaces. */
#include "probe.h"

#include <linux/filter.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_listmount
#define SYS_listmount 458
#endif
#ifndef SYS_lsm_list_modules
#define SYS_lsm_list_modules 461
#endif

/* A mount that is moved or changed by descriptor. */
static void move_mount_up(void) { outcome(syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/tmp", 0), "moved"); }
static void mount_attributes(void) {
    uint64_t how[4] = {0, 1, 0, 0};
    outcome(syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, how, sizeof how), "made writable");
}
static void file_system_picked(void) { outcome(syscall(SYS_fspick, AT_FDCWD, "/", 0), "picked"); }
static void list_mounts(void) {
    uint64_t request[4] = {24, 0xffffffffffffffff, 0, 0}, found[16];
    outcome(syscall(SYS_listmount, request, found, 16, 0), "listed");
}

/* A handle of the host's file is no way to it. */
static void handle_of_secret(void) {
    struct {
        struct file_handle head;
        unsigned char bytes[128];
    } handle = {.head = {.handle_bytes = 128}};
    int mount;
    const char *path = given("secret");
    if (!path)
        refused(0);
    outcome(name_to_handle_at(AT_FDCWD, path, &handle.head, &mount, 0), "found");
}

/* Namespaces by a descriptor of a process. */
static void enter_by_process(void) {
    int init = syscall(SYS_pidfd_open, 1, 0);
    outcome(init < 0 ? -1 : setns(init, CLONE_NEWNET | CLONE_NEWNS), "entered");
}
static void namespace_of_init(void) { try_open("/proc/1/ns/mnt", O_RDONLY); }
static void root_of_init(void) { try_open("/proc/1/root/", O_RDONLY); }
static void clone_time_namespace(void) { outcome(unshare(0x80), "made"); }

/* In a kernel of its own the first process is the server itself: what it does to that, it does to itself. */
static void needs_an_init(void) {
    char name[16] = "";
    int file = open("/proc/1/comm", O_RDONLY);
    if (file >= 0 && read(file, name, sizeof name - 1) > 0 && strncmp(name, "gantry-init", 11))
        refused(0);
}

/* The init: its memory, its descriptors, its end. */
static void memory_file_of_init(void) { try_open("/proc/1/mem", O_RDWR); }
static void descriptor_of_init(void) {
    int init = syscall(SYS_pidfd_open, 1, 0);
    outcome(init < 0 ? -1 : syscall(SYS_pidfd_getfd, init, 0, 0), "taken");
}
static void signal_init_by_descriptor(void) {
    needs_an_init();
    int init = syscall(SYS_pidfd_open, 1, 0);
    outcome(init < 0 ? -1 : syscall(SYS_pidfd_send_signal, init, SIGKILL, NULL, 0), "sent");
}
static void stop_init(void) {
    needs_an_init();
    /* The kernel drops what a first process does not handle: it must go on. */
    char text[256] = "";
    kill(1, SIGSTOP);
    kill(1, SIGTERM);
    usleep(20000);
    int file = open("/proc/1/stat", O_RDONLY);
    long length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    char *state = length > 0 ? strrchr(text, ')') : NULL;
    if (state && state[2] == 'T')
        done("stopped");
    refused(file < 0 ? errno : 0);
}
static void compare_with_init(void) { outcome(syscall(SYS_kcmp, getpid(), 1, KCMP_FILES, 0, 0), "compared"); }
static void advise_init(void) {
    int init = syscall(SYS_pidfd_open, 1, 0);
    struct { void *at; size_t length; } vector = {(void *)0x400000, 4096};
    outcome(init < 0 ? -1 : syscall(SYS_process_madvise, init, &vector, 1, 20 /* MADV_COLD */, 0), "advised");
}
static void processors_of_init(void) {
    needs_an_init();
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    outcome(sched_setaffinity(1, sizeof set, &set), "set");
}
static void limits_of_init(void) {
    needs_an_init();
    struct rlimit limit = {64, 64};
    outcome(prlimit(1, RLIMIT_NOFILE, &limit, NULL), "set");
}
static void pages_of_init(void) { outcome(syscall(SYS_migrate_pages, 1, 0, NULL, NULL), "moved"); }

/* What was inherited beside 0, 1 and 2; one of those that is not a pipe or a file. */
static void inherited_descriptors(void) {
    for (int fd = 3; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            done("descriptor %d", fd);
    for (int fd = 0; fd < 3; fd++) {
        struct stat what;
        if (!fstat(fd, &what) && (S_ISSOCK(what.st_mode) || S_ISDIR(what.st_mode)))
            done("descriptor %d leads elsewhere", fd);
    }
    refused(0);
}

/* A program without a file: allowed, and held by the same rules. */
static void program_from_memory(void) {
    int program = memfd_create("probe", 0), own = open("/proc/self/exe", O_RDONLY);
    char text[65536];
    long length;
    while (own >= 0 && (length = read(own, text, sizeof text)) > 0)
        if (write(program, text, length) < 0)
            refused(errno);
    pid_t child = fork();
    if (!child) {
        char *words[] = {"probes", "new_user_namespace", "mount_memory", NULL}, *none[] = {NULL};
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        syscall(SYS_execveat, program, "", words, none, AT_EMPTY_PATH);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) == 127)
        refused(EACCES);
    done("runs, held as before");
}

/* Families of sockets. */
static void family(int number, int kind) { outcome(socket(number, kind | SOCK_CLOEXEC, 0), "opened"); }
static void virtual_socket(void) { family(40, SOCK_STREAM); }
static void tipc_socket(void) { family(30, SOCK_RDM); }
static void rds_socket(void) { family(21, SOCK_SEQPACKET); }
static void can_socket(void) { family(29, SOCK_RAW); }
static void key_socket(void) { family(15, SOCK_RAW); }
static void xdp_socket(void) { family(44, SOCK_RAW); }
static void smc_socket(void) { family(43, SOCK_STREAM); }
static void sctp_socket(void) { outcome(socket(AF_INET, SOCK_STREAM, 132), "opened"); }
static void ping_socket(void) {
    /* Allowed where the host allows it, and leads nowhere: there is only the own loopback. */
    int ping = socket(AF_INET, SOCK_DGRAM, 1);
    if (ping < 0)
        refused(errno);
    refused(0);
}

/* A filter of its own that another program answers, and a longer time before it. */
static void answer_calls(void) {
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &all};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (listener < 0)
        refused(errno);
    /* Its own calls and those of its children, which were held before. */
    refused(0);
}
static void gain_privileges(void) { outcome(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), "unset"); }
static void ambient_capability(void) { outcome(prctl(47, 2, 21, 0, 0), "raised"); }
static void keep_capabilities(void) { outcome(prctl(PR_SET_SECUREBITS, 0x10, 0, 0, 0), "kept"); }
static void program_break(void) { outcome(prctl(35 /* PR_SET_MM */, 13, "/", 0, 0), "replaced"); }
static void bounding_capability(void) {
    for (int capability = 0; capability < 41; capability++)
        if (prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1)
            done("capability %d can be gained", capability);
    refused(0);
}

/* Other ways to the kernel. */
static void security_modules(void) {
    uint64_t found[16];
    uint32_t size = sizeof found;
    outcome(syscall(SYS_lsm_list_modules, found, &size, 0), "listed");
}
static void process_numbers(void) { try_open("/proc/sys/kernel/pid_max", O_WRONLY); }
static void score_of_init(void) { try_rewrite("/proc/1/oom_score_adj"); }
static void cgroup_of_init(void) {
    char text[512];
    int file = open("/proc/1/cgroup", O_RDONLY);
    long length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (length < 0)
        refused(errno);
    text[length] = 0;
    if (strstr(text, "gantry"))
        shown("read", text, length);
    refused(0);
}

const struct probe escape_probes[] = {
    {"move_mount_up", move_mount_up},
    {"mount_attributes", mount_attributes},
    {"file_system_picked", file_system_picked},
    {"list_mounts", list_mounts},
    {"handle_of_secret", handle_of_secret},
    {"enter_by_process", enter_by_process},
    {"namespace_of_init", namespace_of_init},
    {"root_of_init", root_of_init},
    {"clone_time_namespace", clone_time_namespace},
    {"memory_file_of_init", memory_file_of_init},
    {"descriptor_of_init", descriptor_of_init},
    {"signal_init_by_descriptor", signal_init_by_descriptor},
    {"stop_init", stop_init},
    {"compare_with_init", compare_with_init},
    {"advise_init", advise_init},
    {"processors_of_init", processors_of_init},
    {"limits_of_init", limits_of_init},
    {"pages_of_init", pages_of_init},
    {"inherited_descriptors", inherited_descriptors},
    {"program_from_memory", program_from_memory},
    {"virtual_socket", virtual_socket},
    {"tipc_socket", tipc_socket},
    {"rds_socket", rds_socket},
    {"can_socket", can_socket},
    {"key_socket", key_socket},
    {"xdp_socket", xdp_socket},
    {"smc_socket", smc_socket},
    {"sctp_socket", sctp_socket},
    {"ping_socket", ping_socket},
    {"answer_calls", answer_calls},
    {"gain_privileges", gain_privileges},
    {"ambient_capability", ambient_capability},
    {"keep_capabilities", keep_capabilities},
    {"program_break", program_break},
    {"bounding_capability", bounding_capability},
    {"security_modules", security_modules},
    {"process_numbers", process_numbers},
    {"score_of_init", score_of_init},
    {"cgroup_of_init", cgroup_of_init},
    {NULL, NULL},
};
