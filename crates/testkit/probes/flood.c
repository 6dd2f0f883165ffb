/* `probes flood`: connections to itself that nobody accepts, each with all that fits into its queue. At most
 * a few hundred MiB; holds them until it is ended. */
#include "probe.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define PROCESSES 2
#define LISTENERS 2
#define CONNECTIONS 200
/* How much each process writes at most. */
#define MOST (192L << 20)

static long fill(const struct sockaddr_in *to) {
    static char bytes[1 << 20];
    int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), most = 64 << 20;
    setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &most, sizeof most);
    connect(socket_, (const struct sockaddr *)to, sizeof *to);
    long all = 0;
    for (int turn = 0; turn < 5; turn++) {
        long written;
        while ((written = write(socket_, bytes, sizeof bytes)) > 0)
            all += written;
        usleep(1000);
    }
    /* What was written stays with the other end, which nobody has. */
    close(socket_);
    return all;
}

int flood(void) {
    for (int process = 1; process < PROCESSES; process++)
        if (!fork())
            break;
    long all = 0;
    for (int listener = 0; listener < LISTENERS; listener++) {
        int socket_ = socket(AF_INET, SOCK_STREAM, 0), most = 64 << 20;
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof own;
        setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &most, sizeof most);
        if (bind(socket_, (struct sockaddr *)&own, length) || listen(socket_, CONNECTIONS))
            return 1;
        getsockname(socket_, (struct sockaddr *)&own, &length);
        for (int count = 0; count < CONNECTIONS && all < MOST; count++)
            all += fill(&own);
    }
    sleep(60);
    return 0;
}
