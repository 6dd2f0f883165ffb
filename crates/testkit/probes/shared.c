/* Probes of what all of a machine share: limits and tables of the whole kernel, programs that others run
 * too, disks and terminals; and of the other ways to make a call that a filter refuses. */
#include "probe.h"

#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

/* Contexts of asynchronous I/O: there is one limit for all processes of the machine. */
static void asynchronous_io(void) {
    aio_context_t context = 0;
    outcome(syscall(SYS_io_setup, 1024, &context), "made");
}

/* A call by the table of 32-bit programs, whose numbers mean others, and by that of x32. */
static void call_of_32_bits(void) {
#ifdef __x86_64__
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    if (result > 0)
        done("answered");
    refused(-result);
#else
    refused(ENOSYS);
#endif
}
static void call_of_x32(void) { outcome(syscall(0x40000000 | SYS_mount, "none", "/tmp", "tmpfs", 0, ""), "mounted"); }
static void segment_table(void) {
#ifdef SYS_modify_ldt
    uint32_t entry[4] = {0, 0, 0xfffff, 0x51};
    outcome(syscall(SYS_modify_ldt, 1, entry, sizeof entry), "set");
#else
    refused(ENOSYS);
#endif
}

/* The other parts of the kernel that are spoken to by netlink. */
static void netlink(int protocol) { outcome(socket(AF_NETLINK, SOCK_RAW, protocol), "made"); }
static void netlink_sockets(void) { netlink(NETLINK_SOCK_DIAG); }
static void netlink_firewall(void) { netlink(NETLINK_NETFILTER); }
static void netlink_families(void) { netlink(NETLINK_GENERIC); }
static void netlink_processes(void) { netlink(NETLINK_CONNECTOR); }
static void netlink_crypto(void) { netlink(NETLINK_CRYPTO); }
static void netlink_tunnels(void) { netlink(NETLINK_XFRM); }

/* Before others in the queues of processor and disk. */
static void deadline_scheduling(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } how = {48, 6, 0, 0, 0, 10000000, 20000000, 20000000};
    outcome(syscall(SYS_sched_setattr, 0, &how, 0), "set");
}
static void real_time_disk(void) { outcome(syscall(SYS_ioprio_set, 1, 0, 1 << 13), "set"); }
static void wake_machine(void) {
    timer_t timer;
    outcome(timer_create(CLOCK_REALTIME_ALARM, NULL, &timer), "made");
}
static void watch_all_files(void) { outcome(syscall(SYS_fanotify_init, 0x200, 0), "made"); }

/* Programs that others run: the init's, and those of the root. */
static void write_program_of_init(void) { try_open("/proc/1/exe", O_RDWR); }
static void write_programs(void) {
    static const char *const all[] = {"/usr/bin/env", "/bin/busybox", "/bin/sh", "/probes", NULL};
    int error = ENOENT;
    for (const char *const *path = all; *path; path++) {
        if (open(*path, O_WRONLY) >= 0 || !chmod(*path, 0777) || !utimes(*path, NULL))
            done("%s", *path);
        if (errno != ENOENT)
            error = errno;
    }
    refused(error);
}
static void write_through_own_memory(void) {
    /* A file that is mapped for reading alone, by the file of the own memory. */
    int own = open("/proc/self/exe", O_RDONLY), memory = open("/proc/self/mem", O_RDWR);
    char *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, own, 0);
    if (own < 0 || memory < 0 || at == MAP_FAILED)
        refused(errno);
    outcome(pwrite(memory, "\177", 1, (off_t)(uintptr_t)at), "written");
}

/* The disk beneath its own files. */
static void of_disk(unsigned long request, void *argument) {
    int folder = open("/tmp", O_RDONLY);
    outcome(folder < 0 ? -1 : ioctl(folder, request, argument), "done");
}
static void shut_down_disk(void) { int how = 2; of_disk(_IOR('X', 125, int), &how); }
static void freeze_disk(void) { of_disk(FIFREEZE, NULL); }
static void trim_disk(void) { struct fstrim_range all = {0, -1, 0}; of_disk(FITRIM, &all); }
static void grow_disk(void) { uint64_t blocks = 1 << 20; of_disk(_IOW('f', 16, uint64_t), &blocks); }
static void flags_for_good(void) {
    int file = open("/tmp/flags", O_CREAT | O_RDWR, 0600), flags = FS_IMMUTABLE_FL;
    outcome(ioctl(file, FS_IOC_SETFLAGS, &flags), "set");
}
static void reserve_disk(void) {
    int file = open("/tmp/reserved", O_CREAT | O_RDWR, 0600);
    long result = fallocate(file, 0, 0, 4L << 30);
    int error = errno;
    unlink("/tmp/reserved");
    errno = error;
    outcome(result, "reserved");
}
static void names_of_disks(void) {
    char text[4096];
    int file = open("/proc/diskstats", O_RDONLY);
    long length = file < 0 ? -1 : read(file, text, sizeof text);
    if (length < 0)
        refused(errno);
    if (length > 0)
        shown("read", text, length);
    refused(0);
}

/* Terminals: one number of them for the machine, and input for whoever reads there. */
static void many_terminals(void) {
    for (int count = 0; count < 500; count++)
        if (open("/dev/ptmx", O_RDWR | O_NOCTTY) < 0)
            refused(errno);
    done("500");
}
static void type_into_terminal(void) {
    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    outcome(terminal < 0 ? -1 : ioctl(terminal, 0x5412 /* TIOCSTI */, "x"), "typed");
}
static void random_numbers(void) {
    int file = open("/dev/urandom", O_RDONLY), bits = 8;
    outcome(ioctl(file, _IOW('R', 1, int), &bits), "counted");
}

const struct probe shared_probes[] = {
    {"asynchronous_io", asynchronous_io},
    {"call_of_32_bits", call_of_32_bits},
    {"call_of_x32", call_of_x32},
    {"segment_table", segment_table},
    {"netlink_sockets", netlink_sockets},
    {"netlink_firewall", netlink_firewall},
    {"netlink_families", netlink_families},
    {"netlink_processes", netlink_processes},
    {"netlink_crypto", netlink_crypto},
    {"netlink_tunnels", netlink_tunnels},
    {"deadline_scheduling", deadline_scheduling},
    {"real_time_disk", real_time_disk},
    {"wake_machine", wake_machine},
    {"watch_all_files", watch_all_files},
    {"write_program_of_init", write_program_of_init},
    {"write_programs", write_programs},
    {"write_through_own_memory", write_through_own_memory},
    {"shut_down_disk", shut_down_disk},
    {"freeze_disk", freeze_disk},
    {"trim_disk", trim_disk},
    {"grow_disk", grow_disk},
    {"flags_for_good", flags_for_good},
    {"reserve_disk", reserve_disk},
    {"names_of_disks", names_of_disks},
    {"many_terminals", many_terminals},
    {"type_into_terminal", type_into_terminal},
    {"random_numbers", random_numbers},
    {NULL, NULL},
};
