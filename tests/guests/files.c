/* Files in /tmp: create, append, seek, truncate, rename, directories, errors. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static void show(const char *what, long result)
{
    printf("%s: %ld %s\n", what, result, result < 0 ? strerror(errno) : "");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int main(void)
{
    char directory[] = "/tmp/sandtide-XXXXXX", text[64];
    struct stat status;
    if (!mkdtemp(directory) || chdir(directory))
        return 1;
    int file = open("a", O_RDWR | O_CREAT | O_EXCL, 0600);
    show("again", open("a", O_RDWR | O_CREAT | O_EXCL, 0600));
    struct iovec parts[2] = {{(char *)"hello ", 6}, {(char *)"world\n", 6}};
    show("writev", writev(file, parts, 2));
    show("pwrite", pwrite(file, "W", 1, 6));
    show("seek", lseek(file, -6, SEEK_END));
    memset(text, 0, sizeof(text));
    show("read", read(file, text, 5));
    puts(text);
    show("hole", lseek(file, 100, SEEK_SET));
    show("write", write(file, "x", 1));
    fstat(file, &status);
    printf("size %ld, regular %d, mode %o\n", (long)status.st_size, S_ISREG(status.st_mode),
           (unsigned)status.st_mode & 0777);
    show("truncate", ftruncate(file, 3));
    int twin = dup(file);
    show("dup", lseek(twin, 0, SEEK_CUR));
    close(file);
    show("closed", read(file, text, 1));
    close(twin);

    show("rename", rename("a", "b"));
    show("gone", open("a", O_RDONLY));
    show("mkdir", mkdir("d", 0700));
    show("mkdir", mkdir("d", 0700));
    show("not a directory", open("b/c", O_RDONLY));
    show("is a directory", open("d", O_WRONLY));
    FILE *stream = fopen("d/log", "a+");
    for (int i = 0; i < 300; i++)
        fprintf(stream, "line %d\n", i);
    rewind(stream);
    int lines = 0;
    while (fgets(text, sizeof(text), stream))
        lines++;
    printf("%d lines, last %s", lines, text);
    fclose(stream);
    show("rmdir", rmdir("d"));

    const char *names[8];
    int count = 0;
    DIR *listing = opendir(".");
    for (struct dirent *entry; (entry = readdir(listing)) && count < 8;)
        names[count++] = strdup(entry->d_name);
    closedir(listing);
    qsort(names, (size_t)count, sizeof(*names), by_name);
    for (int i = 0; i < count; i++)
        printf("%s ", names[i]);
    printf("\n");
    show("unlink", unlink("d/log"));
    show("rmdir", rmdir("d"));
    show("unlink", unlink("b"));
    show("access", access("b", R_OK));
    return chdir("/") || rmdir(directory);
}
