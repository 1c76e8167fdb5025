# cmake -DFROM=file -DTO=header -DNAME=identifier -P embed.cmake
# Writes a header with the file's text as a C++ string, for what must travel inside the program.
file(READ ${FROM} text)
file(WRITE ${TO} "#pragma once\nnamespace caravan::engine {\ninline constexpr char ${NAME}[] = R\"~~~(${text})~~~\";\n}\n")
