// What every program here needs: one line for each thing that is looked at.

#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <stdio.h>
#include <string.h>

static inline const char *error_name(int number) { return number == 0 ? "0" : strerrorname_np(number); }

// The result of a call: a number, or the name of its error.
#define SHOW(call)                                                                                \
    do {                                                                                          \
        errno = 0;                                                                                \
        long shown = (long)(call);                                                                \
        if (shown == -1 && errno != 0)                                                            \
            printf("%d %s: %s\n", __LINE__, #call, error_name(errno));                            \
        else                                                                                      \
            printf("%d %s = %ld\n", __LINE__, #call, shown);                                      \
    } while (0)
