/* Prints its arguments and environment, and what the system says about itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/utsname.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    struct utsname system;
    printf("%d\n", argc);
    for (int i = 1; i < argc; i++)
        printf("[%s]\n", argv[i]);
    for (char **entry = environ; *entry; entry++)
        if (strncmp(*entry, "GUEST_", 6) == 0)
            printf("{%s}\n", *entry);
    printf("%s %d\n", argv[argc] ? "?" : "ends", getenv("GUEST_NONE") != NULL);
    setenv("GUEST_NEW", "new value", 1);
    unsetenv("GUEST_A");
    printf("%s %d\n", getenv("GUEST_NEW"), getenv("GUEST_A") != NULL);
    uname(&system);
    printf("%s %s\n", system.sysname, system.machine);
    printf("%ld %lu %d\n", sysconf(_SC_PAGESIZE), getauxval(AT_PAGESZ), getpid() > 0);
    return 0;
}
