/* Probes of files: those of the host, of the gateway and of other servers; devices, mounts, quotas. */
#include "probe.h"

#include <dirent.h>
#include <linux/fs.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <utime.h>

#define NEED(key) (given(key) ? given(key) : (refused(0), ""))

static void read_of(const char *path) {
    char text[200];
    int file = open(path, O_RDONLY | O_NONBLOCK);
    if (file < 0)
        refused(errno);
    long length = read(file, text, sizeof text);
    if (length < 0)
        refused(errno);
    shown("read", text, length);
}

static void below(const char *prefix, const char *path, char *into) { snprintf(into, PATH_MAX, "%s%s", prefix, path); }

static void read_secret(void) { read_of(NEED("secret")); }
static void read_secret_by_init(void) { char path[PATH_MAX]; below("/proc/1/root", NEED("secret"), path); read_of(path); }
static void read_secret_by_cwd(void) { char path[PATH_MAX]; below("/proc/1/cwd", NEED("secret"), path); read_of(path); }
static void read_neighbour(void) { read_of(NEED("neighbour")); }
static void read_password_file(void) { read_of("/etc/shadow"); }

static void read_secret_by_dots(void) {
    char path[PATH_MAX];
    below("../../../../../../../../../..", NEED("secret"), path);
    read_of(path);
}

static void read_secret_by_link(void) {
    char link[64];
    snprintf(link, sizeof link, "/tmp/link-%d", getpid());
    if (symlink(NEED("secret"), link) < 0)
        refused(errno);
    read_of(link);
}

static void write_file(void) {
    int file = open(NEED("file"), O_WRONLY | O_APPEND);
    outcome(file < 0 ? -1 : write(file, "probe", 5), "wrote");
}

static void create_file(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/probe", NEED("folder"));
    outcome(open(path, O_WRONLY | O_CREAT, 0666), "created");
}

static void rename_file(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.moved", NEED("file"));
    outcome(rename(given("file"), path), "renamed");
}

static void link_file(void) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/hard-%d", getpid());
    outcome(link(NEED("file"), path), "linked");
}

static void truncate_file(void) { outcome(truncate(NEED("file"), 0), "truncated"); }
static void remove_file(void) { outcome(unlink(NEED("file")), "removed"); }
static void mode_of_file(void) { outcome(chmod(NEED("file"), 04777), "changed"); }
static void mode_of_folder(void) { outcome(chmod(NEED("folder"), 0), "changed"); }
static void owner_of_file(void) { outcome(chown(NEED("file"), getuid(), getgid()), "changed"); }
static void times_of_file(void) { outcome(utime(NEED("file"), NULL), "changed"); }
static void attribute_of_file(void) { outcome(setxattr(NEED("file"), "user.probe", "x", 1, 0), "set"); }
static void flags_of_file(void) {
    int flags = 0, file = open(NEED("file"), O_RDONLY);
    if (file < 0 || ioctl(file, FS_IOC_GETFLAGS, &flags) < 0)
        refused(errno);
    outcome(ioctl(file, FS_IOC_SETFLAGS, &flags), "set");
}

static void lock_file(void) {
    int file = open(NEED("file"), O_RDONLY);
    if (file < 0)
        refused(errno);
    outcome(fcntl(file, F_SETLEASE, F_WRLCK), "leased");
}

static void watch_file(void) {
    int watch = inotify_init1(IN_CLOEXEC);
    outcome(watch < 0 ? -1 : inotify_add_watch(watch, NEED("file"), IN_ALL_EVENTS), "watches");
}

static void watch_mount(void) {
    int watch = fanotify_init(FAN_CLASS_NOTIF, O_RDONLY);
    outcome(watch < 0 ? -1 : fanotify_mark(watch, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN, AT_FDCWD, "/"), "watches");
}

static void open_by_handle(void) {
    struct { struct file_handle head; unsigned char bytes[128]; } handle = {.head.handle_bytes = 128};
    int mount, root = open("/", O_RDONLY);
    if (name_to_handle_at(AT_FDCWD, "/", &handle.head, &mount, 0) < 0)
        refused(errno);
    uint32_t inode = 2;
    memcpy(handle.head.f_handle, &inode, 4);
    outcome(open_by_handle_at(root, &handle.head, O_RDONLY), "opened");
}

/* Makes a device and opens it. */
static void device(mode_t kind, int major_, int minor_) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/device-%d-%d", major_, minor_);
    if (mknod(path, kind | 0666, makedev(major_, minor_)) < 0)
        refused(errno);
    outcome(open(path, O_RDONLY), "opened");
}

static void make_memory_device(void) { device(S_IFCHR, 1, 1); }
static void make_disk_device(void) { device(S_IFBLK, given("disk_major") ? given_number("disk_major") : 8, 0); }

static void first_of(const char *const *paths, int flags) {
    for (; paths[1]; paths++) {
        int file = open(*paths, flags | O_NONBLOCK);
        if (file >= 0)
            done("%s", *paths);
    }
    try_open(*paths, flags);
}

static void memory_device(void) { first_of((const char *const[]){"/dev/port", "/dev/kmem", "/dev/mem", NULL}, O_RDONLY); }
static void disk_device(void) { first_of((const char *const[]){"/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control", NULL}, O_RDONLY); }
static void kernel_log_device(void) { first_of((const char *const[]){"/dev/kmsg", NULL}, O_RDONLY); }
static void fuse_device(void) { first_of((const char *const[]){"/dev/fuse", NULL}, O_RDWR); }
static void virtual_machine_device(void) { first_of((const char *const[]){"/dev/kvm", "/dev/vhost-vsock", "/dev/vhost-net", NULL}, O_RDWR); }
static void network_device(void) { first_of((const char *const[]){"/dev/net/tun", NULL}, O_RDWR); }

static void terminal_input(void) {
    for (int fd = 0; fd < 3; fd++)
        if (ioctl(fd, TIOCSTI, "x") == 0)
            done("typed into descriptor %d", fd);
    int terminal = open("/dev/tty", O_RDWR);
    if (terminal < 0)
        terminal = open("/dev/console", O_RDWR);
    outcome(terminal < 0 ? -1 : ioctl(terminal, TIOCSTI, "x"), "typed");
}

static void mount_memory(void) { mkdir("/tmp/mount", 0777); outcome(mount("none", "/tmp/mount", "tmpfs", 0, ""), "mounted"); }
static void mount_cgroups(void) { mkdir("/tmp/mount", 0777); outcome(mount("none", "/tmp/mount", "cgroup2", 0, ""), "mounted"); }
static void mount_debug(void) { mkdir("/tmp/mount", 0777); outcome(mount("none", "/tmp/mount", "debugfs", 0, ""), "mounted"); }
static void mount_init_root(void) { mkdir("/tmp/mount", 0777); outcome(mount("/proc/1/root", "/tmp/mount", "", MS_BIND, ""), "mounted"); }
static void remount_root(void) { outcome(mount("none", "/", "", MS_REMOUNT | MS_BIND, ""), "remounted"); }
static void unmount_proc(void) { outcome(umount2("/proc", MNT_DETACH), "unmounted"); }
static void unmount_temporary(void) { outcome(umount2("/tmp", MNT_DETACH), "unmounted"); }
static void exchange_root(void) { mkdir("/tmp/new", 0777); outcome(syscall(SYS_pivot_root, "/tmp/new", "/tmp/new"), "exchanged"); }
static void mount_by_descriptor(void) { outcome(syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE), "cloned"); }
static void file_system_by_descriptor(void) { outcome(syscall(SYS_fsopen, "tmpfs", 0), "opened"); }

static void leave_by_chroot(void) {
    char path[PATH_MAX];
    int root = open("/", O_RDONLY | O_DIRECTORY);
    mkdir("/tmp/jail", 0777);
    if (chroot("/tmp/jail") < 0)
        refused(errno);
    fchdir(root);
    for (int i = 0; i < 64; i++)
        if (chdir(".."))
            break;
    chroot(".");
    below("", NEED("secret"), path);
    read_of(path);
}

static void cgroup_leave(void) {
    const char *files[] = {"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/pids/tasks",
                           "/sys/fs/cgroup/cpu/tasks", "/sys/fs/cgroup/unified/cgroup.procs", NULL};
    for (const char **file = files; *file; file++) {
        int group = open(*file, O_WRONLY);
        if (group >= 0 && write(group, "0", 1) == 1)
            done("%s", *file);
    }
    refused(errno);
}

static void cgroup_make(void) {
    const char *folders[] = {"/sys/fs/cgroup/probe", "/sys/fs/cgroup/freezer/probe", "/sys/fs/cgroup/memory/probe",
                             "/sys/fs/cgroup/unified/probe", NULL};
    for (const char **folder = folders; *folder; folder++)
        if (mkdir(*folder, 0777) == 0) {
            rmdir(*folder);
            done("%s", *folder);
        }
    refused(errno);
}

static void cgroup_release_agent(void) {
    const char *files[] = {"/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/cpu/release_agent", NULL};
    for (const char **file = files; *file; file++) {
        int agent = open(*file, O_WRONLY);
        if (agent >= 0)
            done("%s", *file);
    }
    refused(errno);
}

/* Counts what is there under a name that begins so. */
static void cgroup_names(void) {
    const char *tops[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", NULL};
    char text[120] = "";
    for (const char **top = tops; *top; top++) {
        DIR *folder = opendir(*top);
        struct dirent *entry;
        while (folder && (entry = readdir(folder)))
            if (!strncmp(entry->d_name, "gantry-", 7) && strlen(text) + strlen(entry->d_name) < sizeof text - 2)
                strcat(strcat(text, entry->d_name), " ");
    }
    if (!*text)
        refused(0);
    done("%s", text);
}

/* Writes into a folder until it is full or the bound is reached. */
static void fill(const char *folder, long most) {
    static char block[1 << 20];
    char path[PATH_MAX];
    long mebibytes = 0;
    snprintf(path, sizeof path, "%s/fill-%d", folder, getpid());
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    if (file < 0)
        refused(errno);
    while (mebibytes < most && write(file, block, sizeof block) == sizeof block)
        mebibytes++;
    int error = errno;
    unlink(path);
    if (mebibytes < most)
        refused(error);
    done("%ld MiB written", mebibytes);
}

/* Below the memory that a server may use: more than that ends it, which is another test. */
static void fill_temporary(void) { fill("/tmp", 200); }
static void fill_shared_memory(void) { fill("/dev/shm", 200); }
static void fill_run(void) { fill("/run", 200); }

static void fill_inodes(void) {
    char path[64];
    long made = 0, most = 70000;
    mkdir("/tmp/many", 0777);
    for (; made < most; made++) {
        snprintf(path, sizeof path, "/tmp/many/%ld", made);
        int file = open(path, O_WRONLY | O_CREAT, 0600);
        if (file < 0)
            break;
        close(file);
    }
    int error = errno;
    for (long file = 0; file < made; file++) {
        snprintf(path, sizeof path, "/tmp/many/%ld", file);
        unlink(path);
    }
    if (made < most)
        refused(error);
    done("%ld files made", made);
}

static void read_mounts(void) {
    char text[65536] = "";
    int file = open("/proc/self/mountinfo", O_RDONLY);
    long length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (length < 0)
        refused(errno);
    const char *folder = NEED("data");
    if (!strstr(text, folder))
        refused(0);
    done("names %s", folder);
}

const struct probe file_probes[] = {
    {"read_secret", read_secret},
    {"read_secret_by_init", read_secret_by_init},
    {"read_secret_by_cwd", read_secret_by_cwd},
    {"read_secret_by_dots", read_secret_by_dots},
    {"read_secret_by_link", read_secret_by_link},
    {"read_neighbour", read_neighbour},
    {"read_password_file", read_password_file},
    {"read_mounts", read_mounts},
    {"write_file", write_file},
    {"truncate_file", truncate_file},
    {"create_file", create_file},
    {"rename_file", rename_file},
    {"remove_file", remove_file},
    {"link_file", link_file},
    {"mode_of_file", mode_of_file},
    {"mode_of_folder", mode_of_folder},
    {"owner_of_file", owner_of_file},
    {"times_of_file", times_of_file},
    {"attribute_of_file", attribute_of_file},
    {"flags_of_file", flags_of_file},
    {"lock_file", lock_file},
    {"watch_file", watch_file},
    {"watch_mount", watch_mount},
    {"open_by_handle", open_by_handle},
    {"make_memory_device", make_memory_device},
    {"make_disk_device", make_disk_device},
    {"memory_device", memory_device},
    {"disk_device", disk_device},
    {"kernel_log_device", kernel_log_device},
    {"fuse_device", fuse_device},
    {"virtual_machine_device", virtual_machine_device},
    {"network_device", network_device},
    {"terminal_input", terminal_input},
    {"mount_memory", mount_memory},
    {"mount_cgroups", mount_cgroups},
    {"mount_debug", mount_debug},
    {"mount_init_root", mount_init_root},
    {"remount_root", remount_root},
    {"unmount_proc", unmount_proc},
    {"unmount_temporary", unmount_temporary},
    {"exchange_root", exchange_root},
    {"mount_by_descriptor", mount_by_descriptor},
    {"file_system_by_descriptor", file_system_by_descriptor},
    {"leave_by_chroot", leave_by_chroot},
    {"cgroup_leave", cgroup_leave},
    {"cgroup_make", cgroup_make},
    {"cgroup_release_agent", cgroup_release_agent},
    {"cgroup_names", cgroup_names},
    {"fill_temporary", fill_temporary},
    {"fill_shared_memory", fill_shared_memory},
    {"fill_run", fill_run},
    {"fill_inodes", fill_inodes},
    {0},
};
