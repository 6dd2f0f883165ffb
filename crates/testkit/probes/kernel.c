/* Probes of the kernel: its interfaces, settings, modules, clock and log. */
#include "probe.h"

#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/reboot.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/swap.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>

static void key_ring(void) { outcome(syscall(SYS_add_key, "user", "probe", "x", 1, KEY_SPEC_USER_KEYRING), "added"); }
static void session_keys(void) { outcome(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0), "found"); }

static void bpf_map(void) {
    char attributes[128] = {0};
    ((uint32_t *)attributes)[0] = 2, ((uint32_t *)attributes)[1] = 4, ((uint32_t *)attributes)[2] = 4, ((uint32_t *)attributes)[3] = 1;
    outcome(syscall(SYS_bpf, 0, attributes, sizeof attributes), "made");
}

static void performance_events(void) {
    struct perf_event_attr what = {.type = PERF_TYPE_SOFTWARE, .size = sizeof what, .config = PERF_COUNT_SW_CPU_CLOCK};
    outcome(syscall(SYS_perf_event_open, &what, -1, 0, -1, 0), "opened");
}

static void own_performance_events(void) {
    struct perf_event_attr what = {.type = PERF_TYPE_SOFTWARE, .size = sizeof what, .config = PERF_COUNT_SW_CPU_CLOCK, .exclude_kernel = 1};
    outcome(syscall(SYS_perf_event_open, &what, 0, -1, -1, 0), "opened");
}

static void io_ring(void) {
    struct io_uring_params how = {0};
    outcome(syscall(SYS_io_uring_setup, 8, &how), "made");
}

static void page_faults(void) { outcome(syscall(SYS_userfaultfd, O_CLOEXEC | 1), "made"); }
static void load_kernel(void) { outcome(syscall(SYS_kexec_load, 0, 0, NULL, 0), "unloaded"); }

static void load_module(void) {
    long result = syscall(SYS_init_module, "not a module", 12, "");
    if (result < 0 && errno == ENOEXEC)
        done("would be loaded");
    outcome(result, "loaded");
}

static void remove_module(void) {
    long result = syscall(SYS_delete_module, "no_such_module", O_NONBLOCK);
    if (result < 0 && errno == ENOENT)
        done("would be removed");
    outcome(result, "removed");
}

static void reboot_keys(void) { outcome(syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_CAD_OFF, NULL), "set"); }

static void set_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    outcome(clock_settime(CLOCK_REALTIME, &now), "set");
}

static void set_time_of_day(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    outcome(settimeofday(&now, NULL), "set");
}

static void adjust_clock(void) {
    struct timex how = {0};
    adjtimex(&how);
    how.modes = ADJ_TICK;
    outcome(adjtimex(&how), "adjusted");
}


static void host_name(void) {
    struct utsname names;
    uname(&names);
    outcome(sethostname(names.nodename, strlen(names.nodename)), "set");
}

static void domain_name(void) {
    struct utsname names;
    uname(&names);
    outcome(setdomainname(names.domainname, strlen(names.domainname)), "set");
}

static void swap_off(void) {
    long result = swapoff("/no/such/swap");
    if (result < 0 && errno == ENOENT)
        done("would be off");
    outcome(result, "off");
}

static void accounting(void) { outcome(acct(NULL), "off"); }
static void kernel_log(void) { char text[100]; outcome(klogctl(3, text, sizeof text), "read"); }
static void quotas(void) { outcome(syscall(SYS_quotactl, 0x800001 << 8, NULL, 0, NULL), "synced"); }

static void ports(void) {
#ifdef SYS_iopl
    outcome(syscall(SYS_iopl, 3), "opened");
#endif
}

static void system_request(void) {
    int file = open("/proc/sysrq-trigger", O_WRONLY);
    outcome(file < 0 ? -1 : write(file, "h", 1), "sent");
}

static void core_pattern(void) { try_rewrite("/proc/sys/kernel/core_pattern"); }
static void address_randomness(void) { try_rewrite("/proc/sys/kernel/randomize_va_space"); }
static void network_settings(void) { try_rewrite("/proc/sys/net/ipv4/ip_forward"); }
static void namespace_limits(void) { try_rewrite("/proc/sys/user/max_user_namespaces"); }
static void module_helper(void) { try_rewrite("/proc/sys/kernel/modprobe"); }
static void binary_formats(void) { try_open("/proc/sys/fs/binfmt_misc/register", O_WRONLY); }
static void interrupts(void) { try_rewrite("/proc/irq/default_smp_affinity"); }
static void kernel_memory(void) { try_open("/proc/kcore", O_RDONLY); }
static void kernel_messages(void) { try_open("/proc/kmsg", O_RDONLY); }
static void power_state(void) { try_open("/sys/power/state", O_WRONLY); }
static void device_events(void) { try_open("/sys/kernel/uevent_helper", O_WRONLY); }
static void interface_settings(void) { try_rewrite("/sys/class/net/lo/mtu"); }
static void module_parameters(void) { try_rewrite("/sys/module/kernel/parameters/panic"); }
static void kernel_tracing(void) { try_open("/sys/kernel/tracing/trace_marker", O_WRONLY); }
static void security_settings(void) { try_open("/sys/kernel/security/lsm", O_WRONLY); }

static void kernel_addresses(void) {
    char text[200] = "";
    int file = open("/proc/kallsyms", O_RDONLY);
    long length = file < 0 ? -1 : read(file, text, sizeof text);
    if (length < 0)
        refused(errno);
    if (!length || !strncmp(text, "0000000000000000", 16))
        refused(0);
    shown("read", text, 30);
}

static void kernel_command_line(void) {
    char text[200] = "";
    int file = open("/proc/cmdline", O_RDONLY);
    long length = file < 0 ? -1 : read(file, text, sizeof text);
    if (length < 0)
        refused(errno);
    if (!length)
        refused(0);
    shown("read", text, length);
}

static void old_personality(void) { outcome(syscall(SYS_personality, 0x0040000), "set"); }

const struct probe kernel_probes[] = {
    {"key_ring", key_ring},
    {"session_keys", session_keys},
    {"bpf_map", bpf_map},
    {"performance_events", performance_events},
    {"own_performance_events", own_performance_events},
    {"io_ring", io_ring},
    {"page_faults", page_faults},
    {"load_kernel", load_kernel},
    {"load_module", load_module},
    {"remove_module", remove_module},
    {"reboot_keys", reboot_keys},
    {"set_clock", set_clock},
    {"set_time_of_day", set_time_of_day},
    {"adjust_clock", adjust_clock},
    {"host_name", host_name},
    {"domain_name", domain_name},
    {"swap_off", swap_off},
    {"accounting", accounting},
    {"kernel_log", kernel_log},
    {"quotas", quotas},
    {"ports", ports},
    {"system_request", system_request},
    {"core_pattern", core_pattern},
    {"address_randomness", address_randomness},
    {"network_settings", network_settings},
    {"namespace_limits", namespace_limits},
    {"module_helper", module_helper},
    {"binary_formats", binary_formats},
    {"interrupts", interrupts},
    {"kernel_memory", kernel_memory},
    {"kernel_messages", kernel_messages},
    {"kernel_addresses", kernel_addresses},
    {"kernel_command_line", kernel_command_line},
    {"power_state", power_state},
    {"device_events", device_events},
    {"interface_settings", interface_settings},
    {"module_parameters", module_parameters},
    {"kernel_tracing", kernel_tracing},
    {"security_settings", security_settings},
    {"old_personality", old_personality},
    {0},
};
