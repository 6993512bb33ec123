// iostreams: formatting, string streams, manipulators, files, exceptions of streams.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

int main()
{
    std::cout << std::hex << std::showbase << 48879 << ' ' << std::dec << -17 << ' '
              << std::setw(8) << std::setfill('*') << 42 << ' ' << std::left << std::setw(6) << "ab"
              << '|' << std::boolalpha << true << '\n';
    std::cout << std::fixed << std::setprecision(3) << 3.14159 << ' ' << std::scientific << 12345.678
              << ' ' << std::defaultfloat << 0.1 << ' ' << std::hexfloat << 1.5 << std::defaultfloat
              << '\n';

    std::istringstream words("the sea and the sand and the tide");
    std::map<std::string, int> counts;
    for (std::string word; words >> word;)
        counts[word]++;
    for (const auto &[word, count] : counts)
        std::cout << word << '=' << count << ' ';
    std::cout << '\n';

    const char *path = "/tmp/sandtide-iostreams";
    {
        std::ofstream file(path);
        for (int i = 0; i < 1000; i++)
            file << i * i << '\n';
    }
    std::ifstream file(path);
    long sum = 0, lines = 0;
    for (long value; file >> value; lines++)
        sum += value;
    file.clear();
    file.seekg(0, std::ios::end);
    std::cout << lines << " lines, sum " << sum << ", " << file.tellg() << " bytes\n";
    std::remove(path);
    std::cout << std::ifstream(path).is_open() << '\n';

    std::istringstream number("12x");
    int value = 0;
    number >> value;
    char rest = 0;
    number >> rest;
    std::cout << value << rest << ' ' << number.eof() << '\n';
    try {
        std::istringstream bad("x");
        bad.exceptions(std::ios::failbit);
        bad >> value;
    } catch (const std::ios_base::failure &) {
        std::cout << "failure\n";
    }
    std::ostringstream out;
    std::copy_n(std::istream_iterator<std::string>(words), 0, std::ostream_iterator<std::string>(out));
    out << std::quoted("a \"b\"");
    std::cout << out.str() << std::endl;
    return 0;
}
