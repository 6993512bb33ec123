// Threads, mutexes, condition variables, futures, call_once, thread_local.
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

static std::mutex mutex;
static std::condition_variable changed;
static std::queue<int> queue;
static bool closed;
static thread_local int mine = 7;

static long consume()
{
    long sum = 0;
    for (;;) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [] { return closed || !queue.empty(); });
        if (queue.empty())
            return sum;
        sum += queue.front();
        queue.pop();
        changed.notify_all();
    }
}

int main()
{
    std::vector<std::future<long>> consumers;
    for (int i = 0; i < 4; i++)
        consumers.push_back(std::async(std::launch::async, consume));
    for (int i = 1; i <= 2000; i++) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [] { return queue.size() < 16; });
        queue.push(i);
        changed.notify_all();
    }
    {
        std::lock_guard<std::mutex> lock(mutex);
        closed = true;
    }
    changed.notify_all();
    long total = 0;
    for (auto &consumer : consumers)
        total += consumer.get();
    std::printf("%ld\n", total);

    long counter = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&counter, i] {
            mine += i;
            for (int n = 0; n < 500; n++) {
                std::lock_guard<std::mutex> lock(mutex);
                counter += mine - 7;
                if (n % 100 == 0)
                    std::this_thread::yield();
            }
        });
    for (auto &thread : threads)
        thread.join();
    std::printf("%ld %d\n", counter, mine);

    std::once_flag once;
    int calls = 0;
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; i++)
        callers.emplace_back([&] { std::call_once(once, [&] { calls++; }); });
    for (auto &thread : callers)
        thread.join();
    std::printf("%d\n", calls);

    auto failing = std::async(std::launch::async, []() -> int { throw 5; });
    try {
        std::printf("%d\n", failing.get());
    } catch (int number) {
        std::printf("thrown in a thread: %d\n", number);
    }
    std::unique_lock<std::mutex> lock(mutex);
    auto status = changed.wait_for(lock, std::chrono::milliseconds(5), [] { return false; });
    std::printf("timed out: %d\n", !status);
    return 0;
}
