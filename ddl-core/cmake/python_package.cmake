# What the compiled parts of the Python package ddl share: the library that they link, and their place. Included by
# each after its project() and find_package(Python).
include(${CMAKE_CURRENT_LIST_DIR}/settings.cmake)
include_guard(DIRECTORY)

set(DDL_PYTHON_SITE "" CACHE STRING "Where the Python package goes, relative to the prefix or absolute; empty: the \
prefix's lib/pythonX.Y/site-packages")
set(ddl_python_site ${DDL_PYTHON_SITE})
if(NOT ddl_python_site)
  set(ddl_python_site ${CMAKE_INSTALL_LIBDIR}/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages)
endif()

if(NOT TARGET ddl::ddl)
  if(TARGET ddl)
    add_library(ddl::ddl ALIAS ddl)
  else()
    find_package(ddl REQUIRED)
  endif()
endif()

# ddl_install_in_package(TARGET FOLDER DIRECTORY...): installs the target into FOLDER of site-packages. It finds its
# libraries in the DIRECTORYs, absolute or beginning with $ORIGIN, from where it lies itself, so that an environment can
# be moved as a whole.
function(ddl_install_in_package target folder)
  cmake_path(APPEND ddl_python_site ${folder} OUTPUT_VARIABLE destination)
  cmake_path(ABSOLUTE_PATH destination BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE full_destination)
  set(rpath)
  foreach(directory IN LISTS ARGN)
    if(IS_ABSOLUTE ${directory})
      file(RELATIVE_PATH directory ${full_destination} ${directory})
      set(directory $ORIGIN/${directory})
    endif()
    list(APPEND rpath ${directory})
  endforeach()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}" INSTALL_RPATH_USE_LINK_PATH OFF)
  install(TARGETS ${target} LIBRARY DESTINATION ${destination} RUNTIME DESTINATION ${destination})
endfunction()
