# Run by cpack between installing into the package's folder and packing it.
#
# Strips all programs and libraries, and leaves out files that may not be distributed.  Sets modes and times
# that do not depend on the builder, time and place.  Adds the files that Debian requires.
set(top ${CPACK_TEMPORARY_DIRECTORY})
if(NOT top OR NOT IS_DIRECTORY ${top})
    message(FATAL_ERROR "there is nothing to pack in \"${top}\"")
endif()

function(must)
    execute_process(COMMAND ${ARGV} RESULT_VARIABLE failed)
    if(failed)
        list(JOIN ARGV " " words)
        message(FATAL_ERROR "${words}: ${failed}")
    endif()
endfunction()

# Packages have the time of the newest change, unless the builder sets another.
if(NOT "$ENV{SOURCE_DATE_EPOCH}")
    file(STRINGS ${CPACK_AC_DEBIAN}/changelog signed REGEX "^ -- ")
    list(GET signed 0 signed)
    string(REGEX REPLACE "^.*>  " "" signed "${signed}")
    execute_process(COMMAND date -u -d ${signed} +%s OUTPUT_VARIABLE epoch
                    OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "${CPACK_AC_DEBIAN}/changelog: \"${signed}\" is no date")
    endif()
    set(ENV{SOURCE_DATE_EPOCH} ${epoch})
endif()

# Removes the benchmark's peers with foreign code: a package must not depend on software that the build
# machine happened to have, or on newer system libraries for it.
foreach(peer cudart cub rmm mimalloc)
    file(GLOB_RECURSE theirs ${top}/bench_${peer})
    if(theirs)
        file(REMOVE ${theirs})
    endif()
endforeach()

if(CPACK_GENERATOR STREQUAL "DEB")
    set(doc ${top}/usr/share/doc/accelcache)
    file(REMOVE ${doc}/LICENSE) # the copyright file refers to Debian's copy
    configure_file(${CPACK_AC_DEBIAN}/copyright ${doc}/copyright COPYONLY)
    file(READ ${CPACK_AC_DEBIAN}/changelog changes)
    string(REPLACE "accelcache packagers <accelcache@example.org>" "${CPACK_PACKAGE_CONTACT}" changes
           "${changes}")
    file(WRITE ${doc}/changelog.Debian "${changes}")
    file(RENAME ${doc}/CHANGELOG.md ${doc}/changelog)
    configure_file(${CPACK_AC_DEBIAN}/lintian-overrides
                   ${top}/usr/share/lintian/overrides/accelcache COPYONLY)
    file(GLOB pages ${top}/usr/share/man/*/*)
    must(gzip -9nf ${doc}/changelog ${doc}/changelog.Debian ${pages})
endif()

file(GLOB_RECURSE entries LIST_DIRECTORIES true ${top}/*)
foreach(entry IN LISTS entries)
    if(IS_SYMLINK ${entry})
        continue()
    endif()
    if(IS_DIRECTORY ${entry})
        must(chmod 0755 ${entry})
        continue()
    endif()
    file(READ ${entry} magic LIMIT 8 HEX)
    if(magic STREQUAL "213c617263683e0a") # !<arch>
        must(${CPACK_AC_STRIP} --strip-debug --remove-section=.comment
             --enable-deterministic-archives ${entry})
    elseif(magic MATCHES "^7f454c46")
        must(${CPACK_AC_STRIP} --strip-unneeded --remove-section=.comment
             --remove-section=.note ${entry})
    endif()
    # Programs and scripts are executable; libraries and all other files are readable.
    if(entry MATCHES "/(bin|libexec/accelcache)/[^/]*$")
        must(chmod 0755 ${entry})
    else()
        must(chmod 0644 ${entry})
    endif()
endforeach()
must(find ${top} -exec touch -h -d @$ENV{SOURCE_DATE_EPOCH} {} +)
