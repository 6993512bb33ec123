/* String and memory functions at every small length and alignment; conversions; wide text. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <wchar.h>

int main(void)
{
    static char from[128], to[128];
    unsigned long sum = 0;
    for (unsigned offset = 0; offset < 9; offset++)
        for (unsigned target = 0; target < 9; target++)
            for (unsigned length = 0; length < 70; length++) {
                memset(from, 'a', sizeof(from));
                memset(to, 'z', sizeof(to));
                from[offset + length] = 0;
                memcpy(to + target, from + offset, length + 1);
                if (strlen(to + target) != length || to[target + length + 1] != 'z'
                    || strcmp(from + offset, to + target) || memchr(to + target, 'q', length))
                    return 1;
                memmove(to + target + 1, to + target, length + 1);
                sum = sum * 31 + (unsigned char)to[target + length] + strlen(to + target);
            }
    printf("%lu\n", sum);

    char text[] = "one,two;;three four", *rest;
    for (char *word = strtok_r(text, ",; ", &rest); word; word = strtok_r(NULL, ",; ", &rest))
        printf("[%s]", word);
    printf("\n%s %s %s %zu %zu\n", strstr("needle in haystack", "in"), strrchr("a/b/c", '/'),
           strpbrk("key=value", "=:"), strspn("aabbc", "ab"), strcspn("abc,d", ","));
    printf("%d %d %d\n", strncmp("abcd", "abxx", 2), strcasecmp("HeLLo", "hEllO"),
           memcmp("a\0b", "a\0c", 3) < 0);
    char *end;
    long big = (errno = 0, strtol("99999999999999999999", &end, 10));
    printf("%ld %d %d\n", big, errno == ERANGE, *end);
    printf("%ld %lu %ld %.17g %s\n", strtol("-0x1f!", &end, 0), strtoul("777", NULL, 8),
           strtol("zz", NULL, 36), strtod("1e-320junk", &end), end);
    for (int c = 0; c < 128; c++)
        sum = sum * 3
              + (unsigned long)(!!isalpha(c) + 2 * !!isdigit(c) + 4 * !!isspace(c) + 8 * !!ispunct(c)
                                + tolower(c));
    printf("%lu\n", sum);
    wchar_t wide[32];
    swprintf(wide, 32, L"%ls-%d", L"wide", 42);
    printf("%zu %ls\n", wcslen(wide), wide);
    char *copy = strdup("duplicate");
    printf("%s %s\n", copy, strerror(ENOENT));
    free(copy);
    return 0;
}
