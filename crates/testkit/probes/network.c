/* Probes of the network: the host's loopback and services, other addresses, sockets of every kind. */
#include "probe.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Connects without waiting longer than a second, and sends a word. */
static void dial(int family, const char *address, long port) {
    struct sockaddr_storage to = {0};
    socklen_t length;
    if (!port)
        refused(0);
    to.ss_family = family;
    if (family == AF_INET) {
        struct sockaddr_in *v4 = (void *)&to;
        v4->sin_port = htons(port);
        inet_pton(AF_INET, address, &v4->sin_addr);
        length = sizeof *v4;
    } else {
        struct sockaddr_in6 *v6 = (void *)&to;
        v6->sin6_port = htons(port);
        inet_pton(AF_INET6, address, &v6->sin6_addr);
        length = sizeof *v6;
    }
    int socket_ = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (socket_ < 0)
        refused(errno);
    if (connect(socket_, (void *)&to, length) < 0 && errno != EINPROGRESS)
        refused(errno);
    struct pollfd entry = {.fd = socket_, .events = POLLOUT};
    if (poll(&entry, 1, 1000) <= 0)
        refused(ETIMEDOUT);
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error)
        refused(error);
    outcome(send(socket_, "probe", 5, MSG_NOSIGNAL), "connected");
}

static void datagram(const char *address, long port, int broadcast) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, socket_ = socket(AF_INET, SOCK_DGRAM, 0);
    if (!port)
        refused(0);
    if (socket_ < 0)
        refused(errno);
    inet_pton(AF_INET, address, &to.sin_addr);
    if (broadcast)
        setsockopt(socket_, SOL_SOCKET, SO_BROADCAST, &one, sizeof one);
    outcome(sendto(socket_, "probe", 5, 0, (void *)&to, sizeof to), "sent");
}

/* Connects to a local socket; an abstract one has a zero before its name. */
static long local(const char *name, int kind, int abstract) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!name)
        refused(0);
    snprintf(to.sun_path + abstract, sizeof to.sun_path - abstract, "%s", name);
    int socket_ = socket(AF_UNIX, kind, 0);
    if (socket_ < 0)
        refused(errno);
    long result = connect(socket_, (void *)&to, offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name));
    return result < 0 ? result : send(socket_, "probe", 5, MSG_NOSIGNAL);
}

static void host_loopback(void) { dial(AF_INET, "127.0.0.1", given_number("port")); }
static void host_loopback_v6(void) { dial(AF_INET6, "::1", given_number("port6")); }
static void host_loopback_mapped(void) { dial(AF_INET6, "::ffff:127.0.0.1", given_number("port")); }
static void host_any_address(void) { dial(AF_INET, "0.0.0.0", given_number("port")); }
static void host_address(void) { dial(AF_INET, given("address") ? given("address") : "0", given("address") ? given_number("port") : 0); }
static void gateway_port(void) { dial(AF_INET, "127.0.0.1", given_number("gateway")); }
static void metadata_address(void) { dial(AF_INET, "169.254.169.254", 80); }
static void link_local_v6(void) { dial(AF_INET6, "fe80::1", given_number("port6")); }
static void host_udp(void) { datagram("127.0.0.1", given_number("udp"), 0); }
static void udp_broadcast(void) { datagram("255.255.255.255", given_number("udp"), 1); }
static void dns_resolver(void) { datagram("127.0.0.53", 53, 0); }
static void local_socket(void) { outcome(local(given("socket"), SOCK_STREAM, 0), "connected"); }
static void abstract_socket(void) { outcome(local(given("abstract"), SOCK_STREAM, 1), "connected"); }
static void system_log(void) { outcome(local("/dev/log", SOCK_DGRAM, 0), "sent"); }
static void message_bus(void) { outcome(local("/run/dbus/system_bus_socket", SOCK_STREAM, 0), "connected"); }

static void engine_socket(void) {
    if (local("/var/run/docker.sock", SOCK_STREAM, 0) >= 0)
        done("docker.sock");
    outcome(local("/run/containerd/containerd.sock", SOCK_STREAM, 0), "containerd.sock");
}

static void local_socket_by_init(void) {
    char path[PATH_MAX];
    if (!given("socket"))
        refused(0);
    snprintf(path, sizeof path, "/proc/1/root%s", given("socket"));
    outcome(local(path, SOCK_STREAM, 0), "connected");
}

static void raw_socket(void) { outcome(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), "made"); }
static void raw_socket_v6(void) { outcome(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6), "made"); }
static void packet_socket(void) { outcome(socket(AF_PACKET, SOCK_RAW, htons(3)), "made"); }
static void netlink_audit(void) { outcome(socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT), "made"); }
static void crypto_socket(void) { outcome(socket(AF_ALG, SOCK_SEQPACKET, 0), "made"); }
static void bluetooth_socket(void) { outcome(socket(AF_BLUETOOTH, SOCK_RAW, 1), "made"); }

static void netlink_events(void) {
    struct sockaddr_nl to = {.nl_family = AF_NETLINK, .nl_groups = 1};
    int socket_ = socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT);
    outcome(socket_ < 0 ? -1 : bind(socket_, (void *)&to, sizeof to), "listens");
}

static void netlink_interface(void) {
    struct { struct nlmsghdr head; struct ifinfomsg body; char rest[64]; } ask = {0};
    char answer[512];
    int socket_ = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    if (socket_ < 0)
        refused(errno);
    ask.head.nlmsg_type = RTM_NEWLINK;
    ask.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    ask.head.nlmsg_len = NLMSG_LENGTH(sizeof ask.body);
    ask.body.ifi_index = 2;
    send(socket_, &ask, ask.head.nlmsg_len, 0);
    if (recv(socket_, answer, sizeof answer, MSG_DONTWAIT) < (long)NLMSG_LENGTH(sizeof(struct nlmsgerr)))
        refused(errno);
    int error = ((struct nlmsgerr *)NLMSG_DATA((struct nlmsghdr *)answer))->error;
    if (error)
        refused(-error);
    done("changed nothing of an interface");
}

static void host_socket(void) { outcome(socket(AF_VSOCK, SOCK_STREAM, 0), "made"); }

static void take_gateway_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(given_number("free"))};
    int one = 1, socket_ = socket(AF_INET, SOCK_STREAM, 0);
    if (!given("free"))
        refused(0);
    if (socket_ < 0)
        refused(errno);
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(socket_, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (bind(socket_, (void *)&at, sizeof at) < 0 || listen(socket_, 1) < 0)
        refused(errno);
    sleep(1);
    done("listens");
}

static void interface_flags(void) {
    struct ifreq ask = {0};
    int socket_ = socket(AF_INET, SOCK_DGRAM, 0);
    if (socket_ < 0)
        refused(errno);
    strcpy(ask.ifr_name, "eth0");
    if (ioctl(socket_, SIOCGIFFLAGS, &ask) < 0)
        refused(errno);
    outcome(ioctl(socket_, SIOCSIFFLAGS, &ask), "set");
}

const struct probe network_probes[] = {
    {"host_loopback", host_loopback},
    {"host_loopback_v6", host_loopback_v6},
    {"host_loopback_mapped", host_loopback_mapped},
    {"host_any_address", host_any_address},
    {"host_address", host_address},
    {"gateway_port", gateway_port},
    {"take_gateway_port", take_gateway_port},
    {"metadata_address", metadata_address},
    {"link_local_v6", link_local_v6},
    {"host_udp", host_udp},
    {"udp_broadcast", udp_broadcast},
    {"dns_resolver", dns_resolver},
    {"local_socket", local_socket},
    {"local_socket_by_init", local_socket_by_init},
    {"abstract_socket", abstract_socket},
    {"system_log", system_log},
    {"message_bus", message_bus},
    {"engine_socket", engine_socket},
    {"raw_socket", raw_socket},
    {"raw_socket_v6", raw_socket_v6},
    {"packet_socket", packet_socket},
    {"netlink_audit", netlink_audit},
    {"netlink_events", netlink_events},
    {"netlink_interface", netlink_interface},
    {"crypto_socket", crypto_socket},
    {"bluetooth_socket", bluetooth_socket},
    {"host_socket", host_socket},
    {"interface_flags", interface_flags},
    {0},
};
