/* SHA-256 (FIPS 180-4) and CRC-32 over known and long inputs. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t k[64], start[8];

/* The first 32 bits of the fractional parts of roots of primes, in integer arithmetic. */
static uint32_t root_bits(uint32_t prime, int cube)
{
    __extension__ typedef unsigned __int128 wide;
    uint64_t low = 0, high = (uint64_t)1 << 37;
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        wide power = (wide)middle * middle;
        wide target = cube ? (wide)prime << 96 : (wide)prime << 64;
        if (cube ? power <= target / middle : power <= target)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)low;
}

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void compress(uint32_t *state, const unsigned char *block)
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16
               | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7]
               + (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3)
               + (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof(s));
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25))
                      + ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
        uint32_t t2 = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22))
                      + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof(*s));
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

static void sha256(const unsigned char *data, size_t length)
{
    uint32_t state[8];
    unsigned char tail[128] = {0};
    size_t rest = length % 64, padded = rest < 56 ? 64 : 128;
    memcpy(state, start, sizeof(state));
    for (size_t at = 0; at + 64 <= length; at += 64)
        compress(state, data + at);
    memcpy(tail, data + length - rest, rest);
    tail[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        tail[padded - 1 - (size_t)i] = (unsigned char)((uint64_t)length * 8 >> 8 * i);
    compress(state, tail);
    if (padded == 128)
        compress(state, tail + 64);
    for (int i = 0; i < 8; i++)
        printf("%08x", state[i]);
    printf("\n");
}

static uint32_t crc32(const unsigned char *data, size_t length)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < length; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xedb88320u & -(crc & 1));
    }
    return ~crc;
}

static unsigned char large[100003];

int main(void)
{
    int found = 0;
    for (uint32_t n = 2; found < 64; n++) {
        int prime = 1;
        for (uint32_t d = 2; d * d <= n; d++)
            prime &= n % d != 0;
        if (!prime)
            continue;
        if (found < 8)
            start[found] = root_bits(n, 0);
        k[found++] = root_bits(n, 1);
    }
    sha256((const unsigned char *)"", 0);
    sha256((const unsigned char *)"abc", 3);
    for (size_t i = 0; i < sizeof(large); i++)
        large[i] = (unsigned char)(i * 7 + (i >> 8));
    sha256(large, sizeof(large));
    printf("%08x %08x\n", crc32((const unsigned char *)"123456789", 9), crc32(large, sizeof(large)));
    return 0;
}
