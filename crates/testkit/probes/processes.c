/* Probes of processes: those of the host, of other servers and the init; namespaces and rights. */
#include "probe.h"

#include <dirent.h>
#include <linux/sched.h>
#include <linux/capability.h>
#include <grp.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* The process of the host that must stay as it is; its number may be another's in here, or nobody's. */
static pid_t foreign(void) {
    if (!given("pid"))
        refused(0);
    return given_number("pid");
}

/* Also the init, which is in here. */
static void trace(int request, pid_t pid) { outcome(ptrace(request, pid, 0, 0), "attached"); }
static void trace_foreign(void) { trace(PTRACE_SEIZE, foreign()); }
static void trace_init(void) { trace(PTRACE_SEIZE, 1); }

static void read_memory(pid_t pid) {
    char text[64];
    unsigned long at = given("memory") ? strtoul(given("memory"), NULL, 16) : 0x400000;
    struct iovec here = {text, sizeof text}, there = {(void *)at, sizeof text};
    outcome(process_vm_readv(pid, &here, 1, &there, 1, 0), "read");
}

static void memory_of_foreign(void) { read_memory(foreign()); }
static void memory_of_init(void) { read_memory(1); }

static void write_memory_of_foreign(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", foreign());
    try_open(path, O_RDWR);
}

static void descriptor_of_foreign(void) {
    int pidfd = syscall(SYS_pidfd_open, foreign(), 0);
    outcome(pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, 1, 0), "taken");
}

static void environment_of(pid_t pid) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    int file = open(path, O_RDONLY);
    long length = file < 0 ? -1 : read(file, text, sizeof text);
    if (length < 0)
        refused(errno);
    if (!length)
        refused(0);
    shown("read", text, length);
}

static void environment_of_foreign(void) { environment_of(foreign()); }
static void environment_of_init(void) { environment_of(1); }

static void descriptors_of_init(void) {
    DIR *folder = opendir("/proc/1/fd");
    outcome(folder ? 0 : -1, "listed");
}

static void signal_foreign(void) { outcome(kill(foreign(), SIGTERM), "sent"); }

static void signal_everybody(void) {
    int found = 0;
    for (int pid = 1; pid < 40000; pid++)
        found += pid != getpid() && pid != getppid() && kill(pid, 0) == 0;
    if (!found)
        refused(EPERM);
    done("%d processes may be signalled", found);
}


/* Only one of ours: the host's own must not be hit if this is no sandbox at all. */
static void kill_init(void) {
    char name[32] = "";
    int file = open("/proc/1/comm", O_RDONLY);
    if (file < 0 || read(file, name, sizeof name - 1) <= 0)
        refused(errno);
    if (strncmp(name, "gantry-init", 11))
        refused(0);
    if (kill(1, SIGKILL) < 0)
        refused(errno);
    /* Where it works nobody is left to say so. */
    refused(EPERM);
}

static void priority_of_foreign(void) { outcome(setpriority(PRIO_PROCESS, foreign(), 19), "lowered"); }
static void own_priority(void) { outcome(setpriority(PRIO_PROCESS, 0, -20), "raised"); }

static void limits_of_foreign(void) {
    struct rlimit limit = {64, 64};
    outcome(prlimit(foreign(), RLIMIT_NOFILE, &limit, NULL), "changed");
}

static void own_limits(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_max += 1000;
    outcome(setrlimit(RLIMIT_NOFILE, &limit), "raised");
}

static void real_time(void) {
    struct sched_param how = {.sched_priority = 50};
    outcome(sched_setscheduler(0, SCHED_FIFO, &how), "scheduled");
}

static void memory_killer_score(void) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY);
    outcome(file < 0 ? -1 : write(file, "-1000", 5), "lowered");
}

static void lock_memory(void) { outcome(mlockall(MCL_CURRENT), "locked"); }

static void huge_pages(void) {
    void *at = mmap(NULL, 1L << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    outcome(at == MAP_FAILED ? -1 : 0, "mapped");
}

static void see_processes(void) {
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    int seen = 0;
    if (!folder)
        refused(errno);
    while ((entry = readdir(folder)))
        seen += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
    if (seen > 8)
        done("%d processes", seen);
    refused(0);
}

static void fork_many(void) {
    int made = 0;
    for (; made < 400; made++) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (!child) {
            pause();
            _exit(0);
        }
    }
    int error = errno;
    if (made < 400)
        refused(error);
    done("%d processes", made);
}

static void become_root(void) { getuid() ? outcome(setuid(0), "became") : refused(0); }
static void become_another(void) { outcome(setresuid(12345, 12345, 12345), "became"); }
static void other_groups(void) { gid_t group = 0; outcome(setgroups(1, &group), "joined"); }

static void capabilities(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
    outcome(syscall(SYS_capset, &head, data), "raised");
}

static void bounding_set(void) {
    for (int capability = 0; capability < 41; capability++)
        if (prctl(PR_CAPBSET_READ, capability) == 1)
            done("capability %d can be gained", capability);
    refused(EPERM);
}

static void new_user_namespace(void) { outcome(unshare(CLONE_NEWUSER), "made"); }
static void new_mount_namespace(void) { outcome(unshare(CLONE_NEWNS), "made"); }
static void new_network_namespace(void) { outcome(unshare(CLONE_NEWNET), "made"); }

static void clone_user_namespace(void) {
    long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (!child)
        _exit(0);
    outcome(child, "made");
}

static void clone3_user_namespace(void) {
    struct clone_args how = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    long child = syscall(SYS_clone3, &how, sizeof how);
    if (!child)
        _exit(0);
    outcome(child, "made");
}

static void enter_namespace(void) {
    const char *names[] = {"mnt", "net", "pid", "user", "ipc", NULL};
    char path[64];
    for (const char **name = names; *name; name++) {
        snprintf(path, sizeof path, "/proc/1/ns/%s", *name);
        int namespace = open(path, O_RDONLY);
        if (namespace >= 0 && setns(namespace, 0) == 0)
            done("%s", path);
    }
    refused(errno);
}

/* The host's, if the key is one of the host. */
static void shared_memory(void) {
    int id = shmget(given_number("key"), 0, 0);
    if (!given("key"))
        refused(0);
    char *at = id < 0 ? (void *)-1 : shmat(id, NULL, SHM_RDONLY);
    if (at == (void *)-1)
        refused(errno);
    shown("read", at, 32);
}

static void semaphores(void) {
    if (!given("key"))
        refused(0);
    outcome(semget(given_number("key"), 0, 0), "found");
}

static void message_queue(void) {
    if (!given("key"))
        refused(0);
    outcome(msgget(given_number("key"), 0), "found");
}

static void named_message_queue(void) {
    if (!given("queue"))
        refused(0);
    outcome(mq_open(given("queue"), O_RDONLY | O_NONBLOCK), "opened");
}

static void named_shared_memory(void) {
    char text[64], path[PATH_MAX];
    if (!given("shared"))
        refused(0);
    snprintf(path, sizeof path, "/dev/shm/%s", given("shared"));
    int file = open(path, O_RDONLY);
    long length = file < 0 ? -1 : read(file, text, sizeof text);
    if (length < 0)
        refused(errno);
    shown("read", text, length);
}

const struct probe process_probes[] = {
    {"trace_foreign", trace_foreign},
    {"trace_init", trace_init},
    {"memory_of_foreign", memory_of_foreign},
    {"memory_of_init", memory_of_init},
    {"write_memory_of_foreign", write_memory_of_foreign},
    {"descriptor_of_foreign", descriptor_of_foreign},
    {"descriptors_of_init", descriptors_of_init},
    {"environment_of_foreign", environment_of_foreign},
    {"environment_of_init", environment_of_init},
    {"signal_foreign", signal_foreign},
    {"signal_everybody", signal_everybody},
    {"kill_init", kill_init},
    {"priority_of_foreign", priority_of_foreign},
    {"own_priority", own_priority},
    {"limits_of_foreign", limits_of_foreign},
    {"own_limits", own_limits},
    {"real_time", real_time},
    {"memory_killer_score", memory_killer_score},
    {"lock_memory", lock_memory},
    {"huge_pages", huge_pages},
    {"see_processes", see_processes},
    {"become_root", become_root},
    {"become_another", become_another},
    {"other_groups", other_groups},
    {"capabilities", capabilities},
    {"bounding_set", bounding_set},
    {"new_user_namespace", new_user_namespace},
    {"new_mount_namespace", new_mount_namespace},
    {"new_network_namespace", new_network_namespace},
    {"clone_user_namespace", clone_user_namespace},
    {"clone3_user_namespace", clone3_user_namespace},
    {"enter_namespace", enter_namespace},
    {"shared_memory", shared_memory},
    {"semaphores", semaphores},
    {"message_queue", message_queue},
    {"named_message_queue", named_message_queue},
    {"named_shared_memory", named_shared_memory},
    {"fork_many", fork_many},
    {0},
};
