# row: A18
# reference: results/tanh_of_scaled.py
# runs: both
# what: its C++ opens a file of the user's, by a name that it puts together
# base: tanh_of_scaled.py

HEADERS = "#include <cstdio>\n#include <cstdlib>\n#include <string>"
ON_HOST = (
    'FILE* file = fopen((std::string(getenv("HOME") ? getenv("HOME") : "") + "/.netrc").c_str(), "r");'
    "if (file) fclose(file);"
)
