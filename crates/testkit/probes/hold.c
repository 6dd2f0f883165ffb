/* `probes hold`: the process of the host that is attacked. It holds what the probes look for: shared
 * memory, semaphores, message queues, and a secret in its memory and environment. Prints `ready`, then
 * waits for the end of its input and removes what it made. */
#include "probe.h"

#include <mqueue.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

static char in_memory[64];

int hold(void) {
    long key = given_number("key");
    const char *secret = given("canary"), *name = given("queue");
    if (!key || !secret || !name)
        return 2;
    snprintf(in_memory, sizeof in_memory, "%s", secret);
    int memory = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0666);
    int semaphores = semget(key, 1, IPC_CREAT | IPC_EXCL | 0666);
    int messages = msgget(key, IPC_CREAT | IPC_EXCL | 0666);
    mqd_t queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0666, NULL);
    char *at = memory < 0 ? (void *)-1 : shmat(memory, NULL, 0);
    if (at == (void *)-1 || semaphores < 0 || messages < 0 || queue < 0) {
        perror("hold");
        return 1;
    }
    strcpy(at, secret);
    signal(SIGTERM, SIG_DFL);
    printf("ready %lx\n", (unsigned long)in_memory);
    fflush(stdout);
    for (char byte; read(0, &byte, 1) > 0;)
        ;
    shmctl(memory, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
    msgctl(messages, IPC_RMID, NULL);
    mq_unlink(name);
    return 0;
}
