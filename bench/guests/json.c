// A JSON parser and printer by recursive descent, with its own numbers.
#include "measure.h"

#include <stdio.h>

static char text[1 << 17], out[1 << 18];
static unsigned long checksum;
static const char *at;
static char *to;

static void space(void) {
    while (*at == ' ' || *at == '\n') at++;
}

static void copy(int length) {
    while (length-- > 0) *to++ = *at++;
}

static void string(void) {
    *to++ = *at++;
    while (*at != '"') {
        if (*at == '\\') *to++ = *at++;
        checksum = checksum * 31 + (unsigned char)*at;
        *to++ = *at++;
    }
    *to++ = *at++;
}

static void digits(unsigned long value, int least) {
    char buffer[20];
    int length = 0;
    for (; value || length < least; value /= 10) buffer[length++] = (char)('0' + value % 10);
    while (length > 0) *to++ = buffer[--length];
}

// Numbers are read as doubles, and written with two decimals if they are not whole.
static void number(void) {
    int is_negative = *at == '-';
    double value = 0, scale = 1;
    for (at += is_negative; *at >= '0' && *at <= '9'; at++) value = value * 10 + (*at - '0');
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9'; at++) value += (*at - '0') * (scale /= 10);
    unsigned long cents = (unsigned long)(value * 100 + 0.5);
    checksum += cents;
    if (is_negative) *to++ = '-';
    digits(cents / 100, 1);
    if (cents % 100) *to++ = '.', digits(cents % 100, 2);
}

static void value(void) {
    space();
    switch (*at) {
    case '{':
    case '[': {
        char close = *at == '{' ? '}' : ']';
        *to++ = *at++;
        for (space(); *at != close; space()) {
            if (close == '}') {
                string();
                space();
                *to++ = *at++;
            }
            value();
            space();
            if (*at == ',') *to++ = *at++;
        }
        *to++ = *at++;
        break;
    }
    case '"': string(); break;
    case 't': case 'n': copy(4); break;
    case 'f': copy(5); break;
    default: number();
    }
}

int main(void) {
    char *end_of_text = text;
    end_of_text += sprintf(end_of_text, "[");
    for (int i = 0; end_of_text < text + sizeof text - 300; i++)
        end_of_text += sprintf(end_of_text, "%s{\"id\": %d, \"name\": \"user \\\"%d\\\"\", \"tags\": [\"a%d\", \"bb\", null, true], \"score\": %d.%02d, \"on\": %s}",
                               i ? ",\n " : "", i, i * 7, i % 13, i % 100 - 50, i % 97, i % 2 ? "true" : "false");
    sprintf(end_of_text, "]");
    begin();
    int rounds = (int)unknown(700);
    for (int round = 0; round < rounds; round++) {
        at = text, to = out;
        value();
        for (const char *c = out; c < to; c += 64) checksum = checksum * 33 + (unsigned char)*c;
    }
    keep(checksum);
    end();
    printf("%lu %ld\n", checksum, (long)(to - out));
    return 0;
}
