/* Attacks from inside: two hundred and more things that a server in a sandbox must not be able to do.
 *
 *   probes [key=value ...] [NAME ...]     runs the named probes, or all
 *   probes [key=value ...] -NAME ...      runs all but those
 *   probes hold key=value ...             is what they attack; see hold.c
 *   probes flood                          fills the queues of connections; see flood.c
 *
 * Each runs in a process of its own and prints one line: its name, then `done` with what worked,
 * `refused` with the errno, or how it was ended. Keys say what there is to be attacked: `port`, `secret`,
 * `pid` and others. A probe that works does no harm: it writes back what was there, or asks for the
 * mildest form of an act. Statically linked, so that it runs in a root with nothing else in it. */
#include "probe.h"

#include <signal.h>
#include <sys/wait.h>

/* The most that one probe may take. */
#define SECONDS 4

static char **arguments;

const char *given(const char *key) {
    size_t length = strlen(key);
    for (char **argument = arguments; *argument; argument++)
        if (!strncmp(*argument, key, length) && (*argument)[length] == '=')
            return *argument + length + 1;
    return NULL;
}

long given_number(const char *key) {
    const char *value = given(key);
    return value ? strtol(value, NULL, 10) : 0;
}

void done(const char *format, ...) {
    va_list list;
    va_start(list, format);
    printf("done: ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
    exit(0);
}

void refused(int error) {
    if (error)
        printf("refused: %s\n", strerrorname_np(error) ? strerrorname_np(error) : "unknown errno");
    else
        printf("refused: nothing there\n");
    exit(0);
}

void outcome(long result, const char *what) {
    if (result < 0)
        refused(errno);
    done("%s", what);
}

void shown(const char *what, const char *bytes, long length) {
    char text[81];
    int used = 0;
    for (; used < length && used < 80; used++)
        text[used] = bytes[used] > ' ' && bytes[used] < 127 ? bytes[used] : '.';
    text[used] = 0;
    done("%s %s", what, text);
}

void try_open(const char *path, int flags) {
    outcome(open(path, flags | O_CLOEXEC | O_NONBLOCK), path);
}

void try_rewrite(const char *path) {
    char text[4096];
    int file = open(path, O_RDONLY);
    long length = file < 0 ? 0 : read(file, text, sizeof text);
    file = open(path, O_WRONLY);
    if (file < 0 || length < 0)
        refused(errno);
    outcome(write(file, text, length), path);
}

static void run(const struct probe *probe) {
    int status;
    printf("%s\t", probe->name);
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) {
        printf("not run: %s\n", strerrorname_np(errno));
    } else if (!child) {
        setpgid(0, 0);
        alarm(SECONDS);
        setvbuf(stdout, NULL, _IOFBF, 4096);
        probe->run();
        refused(0);
    } else if (waitpid(child, &status, 0) < 0 || WIFSIGNALED(status)) {
        printf("ended: signal %d\n", WTERMSIG(status));
    }
    /* What it left: fork_many leaves many. */
    if (child > 0)
        kill(-child, SIGKILL);
    fflush(stdout);
}

static int wanted(const char *name) {
    int named = 0;
    for (char **argument = arguments; *argument; argument++) {
        if (strchr(*argument, '='))
            continue;
        if (**argument == '-') {
            if (!strcmp(*argument + 1, name))
                return 0;
            continue;
        }
        named = 1;
        if (!strcmp(*argument, name))
            return 1;
    }
    return !named;
}

int main(int count, char **values) {
    const struct probe *all[] = {network_probes, file_probes, process_probes, kernel_probes, escape_probes, shared_probes};
    arguments = values + (count > 0);
    if (*arguments && !strcmp(*arguments, "hold"))
        return hold();
    if (*arguments && !strcmp(*arguments, "flood"))
        return flood();
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t group = 0; group < sizeof all / sizeof *all; group++)
        for (const struct probe *probe = all[group]; probe->name; probe++)
            if (wanted(probe->name))
                run(probe);
    printf("end\n");
    return 0;
}
