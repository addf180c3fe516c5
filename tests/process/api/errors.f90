! Results of failing calls: the status and its text. Nothing stays allocated.
program errors
    use accelcache
    implicit none
    interface
        function cuStreamCreate(stream, flags) bind(c, name="cuStreamCreate") result(status)
            import
            type(c_ptr), intent(out) :: stream
            integer(c_int), value :: flags
            integer(c_int) :: status
        end function
        function cuStreamDestroy(stream) bind(c, name="cuStreamDestroy_v2") result(status)
            import
            type(c_ptr), value :: stream
            integer(c_int) :: status
        end function
    end interface
    integer(c_size_t), parameter :: much = 2_c_size_t ** 40, little = 1000
    type(accel_device_stats_t) :: stats
    type(accel_pointer_info_t) :: info
    type(accel_stream_t) :: stream
    type(accel_pool_id_t) :: pool, unknown
    type(c_ptr) :: block, gone, freed, none, inside
    integer(c_size_t) :: bytes, other
    character(kind=c_char) :: message(200)
    integer(c_intptr_t) :: address

    call is("a device", accel_set_device(0_c_int), ACCEL_OK)
    call is("a stream", cuStreamCreate(gone, 1_c_int), 0)
    call is("memory", accel_malloc_async(block, little, gone), ACCEL_OK)
    call is("its end", cuStreamDestroy(gone), 0)
    call is("memory", accel_malloc(freed, little), ACCEL_OK)
    call is("its end", accel_free(freed), ACCEL_OK)
    address = transfer(block, address) + 512
    inside = transfer(address, inside)
    none = transfer(4096_c_intptr_t, none)
    stats%sizeof_ = c_sizeof(stats)
    info%sizeof_ = c_sizeof(info)
    unknown%second = 4711

    ! Devices that do not exist.
    call is("set_device", accel_set_device(7_c_int), ACCEL_ERROR_INVALID)
    call is("synchronize_device", accel_synchronize_device(7_c_int), ACCEL_ERROR_INVALID)
    call is("get_stream", accel_get_stream(7_c_int, stream), ACCEL_ERROR_INVALID)
    stream%device = 7
    call is("set_stream", accel_set_stream(stream), ACCEL_ERROR_INVALID)
    call is("get_device_stats", accel_get_device_stats(7_c_int, stats), ACCEL_ERROR_INVALID)
    call is("reset_peak_stats", accel_reset_peak_stats(7_c_int), ACCEL_ERROR_INVALID)
    call is("reset_accumulated_stats", accel_reset_accumulated_stats(7_c_int), ACCEL_ERROR_INVALID)
    call is("get_memory_info", accel_get_memory_info(7_c_int, bytes, other), ACCEL_ERROR_INVALID)
    call is("set_memory_fraction", accel_set_memory_fraction(0.5_c_double, 7_c_int), ACCEL_ERROR_INVALID)
    call is("set_memory_fraction", accel_set_memory_fraction(2.0_c_double, 0_c_int), ACCEL_ERROR_INVALID)
    call is("begin_allocate_to_pool", &
            accel_begin_allocate_to_pool(7_c_int, unknown, c_null_funptr, c_null_ptr), ACCEL_ERROR_INVALID)
    call is("pool_bytes", accel_pool_bytes(unknown, 7_c_int, bytes, other), ACCEL_ERROR_INVALID)

    ! A structure with no size.
    stats%sizeof_ = 0
    info%sizeof_ = 0
    call is("get_device_stats", accel_get_device_stats(0_c_int, stats), ACCEL_ERROR_INVALID)
    call is("pointer_info", accel_pointer_info(block, info), ACCEL_ERROR_INVALID)
    stats%sizeof_ = c_sizeof(stats)
    info%sizeof_ = c_sizeof(info)

    ! More memory than the device has, and a destroyed stream.
    call is("malloc", accel_malloc(freed, much), ACCEL_ERROR_DEVICE_MEMORY)
    call is("malloc_async", accel_malloc_async(freed, much, c_null_ptr), ACCEL_ERROR_DEVICE_MEMORY)
    call is("raw_alloc", accel_raw_alloc(freed, much), ACCEL_ERROR_DEVICE_MEMORY)
    call is("raw_alloc_with_stream", accel_raw_alloc_with_stream(freed, much, c_null_ptr), &
            ACCEL_ERROR_DEVICE_MEMORY)
    call is("malloc_async", accel_malloc_async(freed, little, gone), ACCEL_ERROR_INVALID)
    call is("raw_alloc_with_stream", accel_raw_alloc_with_stream(freed, little, gone), ACCEL_ERROR_INVALID)
    call is("record_stream", accel_record_stream(block, gone), ACCEL_ERROR_INVALID)
    call is("free_async", accel_free_async(block, gone), ACCEL_ERROR_INVALID)

    ! Invalid pointers.
    call is("free", accel_free(inside), ACCEL_ERROR_INTERIOR)
    call is("free_async", accel_free_async(inside, c_null_ptr), ACCEL_ERROR_INTERIOR)
    call is("raw_delete", accel_raw_delete(inside), ACCEL_ERROR_INTERIOR)
    call is("free", accel_free(none), ACCEL_ERROR_NOT_OURS)
    call is("free_async", accel_free_async(none, c_null_ptr), ACCEL_ERROR_NOT_OURS)
    call is("raw_delete", accel_raw_delete(none), ACCEL_ERROR_NOT_OURS)
    call is("record_stream", accel_record_stream(none, c_null_ptr), ACCEL_ERROR_NOT_OURS)
    call is("pointer_info", accel_pointer_info(none, info), ACCEL_ERROR_NOT_OURS)
    call is("copy_data", accel_copy_data(c_null_ptr, block, little), ACCEL_ERROR_INVALID)

    ! Pools.
    call is("pool_release", accel_pool_release(unknown), ACCEL_ERROR_INVALID)
    call is("end_allocate_to_pool", accel_end_allocate_to_pool(0_c_int, unknown), ACCEL_ERROR_INVALID)
    call is("pool_create", accel_pool_create(64_c_int, c_null_ptr, pool), ACCEL_ERROR_INVALID)
    call is("pool_create", accel_pool_create(0_c_int, c_null_ptr, pool), ACCEL_OK)
    call is("begin", accel_begin_allocate_to_pool(0_c_int, pool, c_null_funptr, c_null_ptr), ACCEL_OK)
    call is("begin", accel_begin_allocate_to_pool(0_c_int, pool, c_null_funptr, c_null_ptr), &
            ACCEL_ERROR_BUSY)
    call is("pool_release", accel_pool_release(pool), ACCEL_OK)
    call is("pool_release", accel_pool_release(pool), ACCEL_ERROR_BUSY)
    call is("end", accel_end_allocate_to_pool(0_c_int, pool), ACCEL_OK)
    call is("pool_release", accel_pool_release(pool), ACCEL_OK)

    ! Settings, files.
    call is("set_allocator_settings", accel_set_allocator_settings("memory_limt:1G" // c_null_char, message, &
            c_sizeof(message)), ACCEL_ERROR_SETTINGS)
    call is("dump", accel_dump("/no/such/folder/x.json" // c_null_char), ACCEL_ERROR_IO)

    call is("the block", accel_free(block), ACCEL_OK)
    call is("twice", accel_free(block), ACCEL_ERROR_DOUBLE_FREE)
    call is("figures", accel_get_device_stats(0_c_int, stats), ACCEL_OK)
    if (stats%allocation%all%current /= 0) error stop "something stays allocated"
contains
    subroutine is(what, status, wanted)
        character(*), intent(in) :: what
        integer(c_int), intent(in) :: status
        integer, intent(in) :: wanted
        if (status /= wanted) then
            print "(a, a, a, i0, a, i0)", what, ": ", status_text(status), status, " in place of ", wanted
            error stop
        end if
        if (status /= ACCEL_OK .and. index(status_text(status), ":") == 0) error stop "no word of what to do"
    end subroutine
end program
