// Standard algorithms and containers, and C's qsort and bsearch.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

static int compare(const void *a, const void *b)
{
    uint32_t x = *static_cast<const uint32_t *>(a), y = *static_cast<const uint32_t *>(b);
    return (x > y) - (x < y);
}

static uint64_t digest(const std::vector<uint32_t> &numbers)
{
    return std::accumulate(numbers.begin(), numbers.end(), uint64_t{1},
                           [](uint64_t sum, uint32_t n) { return sum * 31 + n; });
}

int main()
{
    std::mt19937 random(12345);
    std::vector<uint32_t> numbers(20000);
    std::generate(numbers.begin(), numbers.end(), std::ref(random));
    std::printf("%016llx\n", static_cast<unsigned long long>(digest(numbers)));

    std::vector<uint32_t> a = numbers, b = numbers, c = numbers;
    std::sort(a.begin(), a.end());
    std::stable_sort(b.begin(), b.end());
    std::qsort(c.data(), c.size(), sizeof(c[0]), compare);
    std::printf("%d %d %016llx\n", a == b, a == c, static_cast<unsigned long long>(digest(a)));
    auto *found = static_cast<uint32_t *>(
        std::bsearch(&numbers[777], c.data(), c.size(), sizeof(c[0]), compare));
    std::printf("%d\n", found && *found == numbers[777]);

    std::nth_element(numbers.begin(), numbers.begin() + 10000, numbers.end());
    std::printf("%d\n", numbers[10000] == a[10000]);
    std::priority_queue<uint32_t> heap(a.begin(), a.begin() + 1000);
    uint32_t last = UINT32_MAX;
    bool ordered = true;
    for (; !heap.empty(); heap.pop()) {
        ordered &= heap.top() <= last;
        last = heap.top();
    }
    std::printf("%d\n", ordered);

    std::unordered_map<std::string, int> map;
    std::set<std::string> set;
    for (int i = 0; i < 5000; i++) {
        map["key" + std::to_string(i % 1777)] += i;
        set.insert(std::to_string(i * 7919 % 5003));
    }
    long sum = 0;
    for (const auto &entry : map)
        sum += entry.second;
    std::printf("%zu %ld %s %s\n", map.size(), sum, set.begin()->c_str(), set.rbegin()->c_str());
    return 0;
}
