! An array on the device and back, memory of a private pool, and what the cache says of them.
program example
    use accelcache
    implicit none
    real(c_double), target :: there(1000), back(1000)
    type(accel_device_stats_t) :: stats
    type(accel_pointer_info_t) :: info
    type(accel_pool_id_t) :: pool
    type(c_ptr) :: device, pooled
    integer(c_size_t) :: bytes, free_bytes, total_bytes
    character(kind=c_char) :: message(200)
    integer :: i

    call must(accel_set_device(0_c_int), "a device")
    there = [(i * 0.5_c_double, i = 1, size(there))]
    bytes = c_sizeof(there)
    call must(accel_malloc(device, bytes), "memory")
    call must(accel_copy_data(device, c_loc(there), bytes), "a copy to the device")
    call must(accel_copy_data(c_loc(back), device, bytes), "a copy back")
    if (any(there /= back)) error stop "the bytes are others"

    call must(accel_pool_create(0_c_int, c_null_ptr, pool), "a pool")
    call must(accel_begin_allocate_to_pool(0_c_int, pool, c_null_funptr, c_null_ptr), "to the pool")
    call must(accel_raw_alloc(pooled, bytes), "memory of the pool")
    call must(accel_end_allocate_to_pool(0_c_int, pool), "the pool's end")
    info%sizeof_ = c_sizeof(info)
    call must(accel_pointer_info(pooled, info), "what is known of it")
    if (info%bytes /= bytes .or. info%pool%second /= pool%second) error stop "of another block"

    stats%sizeof_ = c_sizeof(stats)
    call must(accel_get_device_stats(0_c_int, stats), "figures")
    if (stats%allocation%all%current /= 2) error stop "figures of other blocks"
    if (stats%oversize_segments%allocated /= 0) error stop "the last figure"
    call must(accel_get_memory_info(0_c_int, free_bytes, total_bytes), "memory of the device")
    if (free_bytes >= total_bytes) error stop "nothing is in use"
    print "(i0, a)", stats%allocated_bytes%all%current, " bytes are held"

    call must(accel_raw_delete(pooled), "the end of the pool's block")
    call must(accel_pool_release(pool), "the end of the pool")
    call must(accel_free(device), "the end of the array")
    if (accel_free(device) /= ACCEL_ERROR_DOUBLE_FREE) error stop "freed twice"
    if (accel_set_allocator_settings("memory_limt:1G" // c_null_char, message, c_sizeof(message)) &
        /= ACCEL_ERROR_SETTINGS) error stop "a wrong key"
contains
    subroutine must(status, what)
        integer(c_int), intent(in) :: status
        character(*), intent(in) :: what
        if (status == ACCEL_OK) return
        print "(a, a, a)", what, ": ", status_text(status)
        error stop
    end subroutine
end program
