// An interpreter of a small stack machine: one big switch, and the Collatz sequence.
#include "measure.h"

#include <stdio.h>

enum { PUSH, ADD, SUB, MUL, DUP, SWAP, DROP, JNZ, LOAD, STORE, LESS, HALT };

static long run(const int *code) {
    long stack[64], memory[16] = {0};
    int top = 0;
    for (const int *pc = code;;) {
        switch (*pc++) {
        case PUSH: stack[top++] = *pc++; break;
        case ADD: top--; stack[top - 1] += stack[top]; break;
        case SUB: top--; stack[top - 1] -= stack[top]; break;
        case MUL: top--; stack[top - 1] *= stack[top]; break;
        case DUP: stack[top] = stack[top - 1]; top++; break;
        case SWAP: { long t = stack[top - 1]; stack[top - 1] = stack[top - 2]; stack[top - 2] = t; break; }
        case DROP: top--; break;
        case JNZ: { int to = *pc++; if (stack[--top]) pc = code + to; break; }
        case LOAD: stack[top++] = memory[*pc++]; break;
        case STORE: memory[*pc++] = stack[--top]; break;
        case LESS: top--; stack[top - 1] = stack[top - 1] < stack[top]; break;
        case HALT: return memory[0];
        }
    }
}

int main(void) {
    static const int code[] = {PUSH, 0, STORE, 0, PUSH, 0, STORE, 1,
        /* 8 */ LOAD, 0, LOAD, 1, DUP, MUL, PUSH, 7, SUB, ADD, STORE, 0,
        LOAD, 1, PUSH, 1, ADD, DUP, STORE, 1, PUSH, 4000000, LESS, JNZ, 8, HALT};
    begin();
    unsigned long longest = 0, most = (unsigned long)unknown(500000);
    for (unsigned long n = 1; n < most; n++) {
        unsigned long steps = 0;
        for (unsigned long x = n; x != 1; steps++) x = x & 1 ? 3 * x + 1 : x / 2;
        if (steps > longest) longest = steps;
    }
    long value = run(code);
    keep(longest + (unsigned long)value);
    end();
    printf("%ld %lu\n", value, longest);
    return 0;
}
