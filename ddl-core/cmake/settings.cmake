# What everything of DDL is compiled with. Included by the whole build, and by each part that is built on its own
# against the installed library (cmake -S bindings/torch).
include_guard(GLOBAL)

option(DDL_WERROR "Treat warnings as errors" ON)
set(DDL_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=, for example address,undefined")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
include(GNUInstallDirs)

add_library(ddl_options INTERFACE)
target_compile_options(ddl_options INTERFACE -Wall -Wextra $<$<BOOL:${DDL_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlap in every `"text" + std::string` (GCC bug 105329).
  target_compile_options(ddl_options INTERFACE -Wno-restrict)
endif()
if(DDL_SANITIZE)
  target_compile_options(ddl_options INTERFACE -fsanitize=${DDL_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(ddl_options INTERFACE -fsanitize=${DDL_SANITIZE})
  # The programs also run where the compiler's libraries are not.
  foreach(pair address:asan undefined:ubsan thread:tsan)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 sanitizer)
    list(GET pair 1 library)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND DDL_SANITIZE MATCHES "${sanitizer}")
      target_link_options(ddl_options INTERFACE -static-lib${library})
    endif()
  endforeach()
endif()
