! The C API of libaccelcache.so for Fortran 2008 and later: compile this file with the program, and link with
! the library.  The comments of accelcache.h say what each call does.  Functions that are not here are bound
! in the same way; text that goes to C ends with c_null_char.
module accelcache
    use, intrinsic :: iso_c_binding
    implicit none
    public

    enum, bind(c)
        enumerator :: ACCEL_OK = 0
        enumerator :: ACCEL_ERROR_INVALID = 1
        enumerator :: ACCEL_ERROR_NO_DRIVER = 2
        enumerator :: ACCEL_ERROR_NOT_OURS = 3
        enumerator :: ACCEL_ERROR_CUDA = 4
        enumerator :: ACCEL_ERROR_SETTINGS = 5
        enumerator :: ACCEL_ERROR_OUT_OF_MEMORY = 6
        enumerator :: ACCEL_ERROR_IO = 7
        enumerator :: ACCEL_ERROR_INTERNAL = 8
        enumerator :: ACCEL_ERROR_DEVICE_MEMORY = 9
        enumerator :: ACCEL_ERROR_BUSY = 10
        enumerator :: ACCEL_ERROR_UNSUPPORTED = 11
        enumerator :: ACCEL_ERROR_DOUBLE_FREE = 12
        enumerator :: ACCEL_ERROR_INTERIOR = 13
    end enum

    integer(c_int), parameter :: ACCEL_POOL_USE_ON_OOM = 1, ACCEL_POOL_NO_SPLIT = 2

    type, bind(c) :: accel_stat_t
        integer(c_int64_t) :: current, peak, allocated, freed
    end type

    type, bind(c) :: accel_pool_stat_t
        type(accel_stat_t) :: all, small_pool, large_pool
    end type

    ! sizeof_: set to c_sizeof of the variable before the call.
    type, bind(c) :: accel_device_stats_t
        integer(c_size_t) :: sizeof_ = 0
        integer(c_int64_t) :: num_alloc_retries, num_ooms, max_split_size, num_sync_all_streams, &
                              num_device_alloc, num_device_free
        type(accel_pool_stat_t) :: allocated_bytes, reserved_bytes, active_bytes, requested_bytes, &
                                   allocation, segment, active, inactive_split, inactive_split_bytes
        type(accel_stat_t) :: oversize_allocations, oversize_segments
    end type

    type, bind(c) :: accel_stream_t
        type(c_ptr) :: stream = c_null_ptr
        integer(c_int) :: device = 0
    end type

    type, bind(c) :: accel_pool_id_t
        integer(c_int64_t) :: first = 0, second = 0
    end type

    type, bind(c) :: accel_pointer_info_t
        integer(c_size_t) :: sizeof_ = 0 ! as above
        type(c_ptr) :: base
        integer(c_size_t) :: bytes, allocated
        integer(c_int) :: device, ordered
        type(c_ptr) :: stream
        type(accel_pool_id_t) :: pool
    end type

    interface
        function accel_status_string(status) bind(c) result(text)
            import
            integer(c_int), value :: status
            type(c_ptr) :: text
        end function

        ! --- devices and streams ---

        function accel_version() bind(c) result(version)
            import
            integer(c_int) :: version
        end function

        function accel_device_count() bind(c) result(count)
            import
            integer(c_int) :: count
        end function

        function accel_current_device() bind(c) result(device)
            import
            integer(c_int) :: device
        end function

        function accel_set_device(device) bind(c) result(status)
            import
            integer(c_int), value :: device
            integer(c_int) :: status
        end function

        function accel_synchronize_device(device) bind(c) result(status)
            import
            integer(c_int), value :: device
            integer(c_int) :: status
        end function

        function accel_get_stream(device, stream) bind(c) result(status)
            import
            integer(c_int), value :: device
            type(accel_stream_t), intent(out) :: stream
            integer(c_int) :: status
        end function

        function accel_set_stream(stream) bind(c) result(status)
            import
            type(accel_stream_t), value :: stream
            integer(c_int) :: status
        end function

        ! --- memory ---

        function accel_malloc(pointer, bytes) bind(c) result(status)
            import
            type(c_ptr), intent(out) :: pointer
            integer(c_size_t), value :: bytes
            integer(c_int) :: status
        end function

        function accel_free(pointer) bind(c) result(status)
            import
            type(c_ptr), value :: pointer
            integer(c_int) :: status
        end function

        function accel_malloc_async(pointer, bytes, stream) bind(c) result(status)
            import
            type(c_ptr), intent(out) :: pointer
            integer(c_size_t), value :: bytes
            type(c_ptr), value :: stream
            integer(c_int) :: status
        end function

        function accel_free_async(pointer, stream) bind(c) result(status)
            import
            type(c_ptr), value :: pointer, stream
            integer(c_int) :: status
        end function

        function accel_record_stream(pointer, stream) bind(c) result(status)
            import
            type(c_ptr), value :: pointer, stream
            integer(c_int) :: status
        end function

        function accel_raw_alloc(pointer, bytes) bind(c) result(status)
            import
            type(c_ptr), intent(out) :: pointer
            integer(c_size_t), value :: bytes
            integer(c_int) :: status
        end function

        function accel_raw_alloc_with_stream(pointer, bytes, stream) bind(c) result(status)
            import
            type(c_ptr), intent(out) :: pointer
            integer(c_size_t), value :: bytes
            type(c_ptr), value :: stream
            integer(c_int) :: status
        end function

        function accel_raw_delete(pointer) bind(c) result(status)
            import
            type(c_ptr), value :: pointer
            integer(c_int) :: status
        end function

        function accel_pointer_info(pointer, info) bind(c) result(status)
            import
            type(c_ptr), value :: pointer
            type(accel_pointer_info_t), intent(inout) :: info
            integer(c_int) :: status
        end function

        function accel_copy_data(to, from, bytes) bind(c) result(status)
            import
            type(c_ptr), value :: to, from
            integer(c_size_t), value :: bytes
            integer(c_int) :: status
        end function

        ! --- state ---

        function accel_get_device_stats(device, stats) bind(c) result(status)
            import
            integer(c_int), value :: device
            type(accel_device_stats_t), intent(inout) :: stats
            integer(c_int) :: status
        end function

        function accel_reset_accumulated_stats(device) bind(c) result(status)
            import
            integer(c_int), value :: device
            integer(c_int) :: status
        end function

        function accel_reset_peak_stats(device) bind(c) result(status)
            import
            integer(c_int), value :: device
            integer(c_int) :: status
        end function

        function accel_get_memory_info(device, free_bytes, total_bytes) bind(c) result(status)
            import
            integer(c_int), value :: device
            integer(c_size_t), intent(out) :: free_bytes, total_bytes
            integer(c_int) :: status
        end function

        function accel_get_device_memory_info(device, free_bytes, total_bytes) bind(c) result(status)
            import
            integer(c_int), value :: device
            integer(c_size_t), intent(out) :: free_bytes, total_bytes
            integer(c_int) :: status
        end function

        function accel_empty_cache() bind(c) result(status)
            import
            integer(c_int) :: status
        end function

        function accel_set_memory_fraction(fraction, device) bind(c) result(status)
            import
            real(c_double), value :: fraction
            integer(c_int), value :: device
            integer(c_int) :: status
        end function

        function accel_set_allocator_settings(conf, message, message_size) bind(c) result(status)
            import
            character(kind=c_char), intent(in) :: conf(*)
            character(kind=c_char), intent(out) :: message(*)
            integer(c_size_t), value :: message_size
            integer(c_int) :: status
        end function

        function accel_enable(enabled) bind(c) result(status)
            import
            integer(c_int), value :: enabled
            integer(c_int) :: status
        end function

        function accel_dump(path) bind(c) result(status)
            import
            character(kind=c_char), intent(in) :: path(*)
            integer(c_int) :: status
        end function

        ! --- private pools ---

        function accel_pool_create(flags, allocator, pool) bind(c) result(status)
            import
            integer(c_int), value :: flags
            type(c_ptr), value :: allocator ! c_null_ptr: the cache
            type(accel_pool_id_t), intent(out) :: pool
            integer(c_int) :: status
        end function

        function accel_pool_release(pool) bind(c) result(status)
            import
            type(accel_pool_id_t), value :: pool
            integer(c_int) :: status
        end function

        function accel_begin_allocate_to_pool(device, pool, filter, arg) bind(c) result(status)
            import
            integer(c_int), value :: device
            type(accel_pool_id_t), value :: pool
            type(c_funptr), value :: filter ! c_null_funptr: all streams
            type(c_ptr), value :: arg
            integer(c_int) :: status
        end function

        function accel_end_allocate_to_pool(device, pool) bind(c) result(status)
            import
            integer(c_int), value :: device
            type(accel_pool_id_t), value :: pool
            integer(c_int) :: status
        end function

        function accel_pool_bytes(pool, device, reserved, allocated) bind(c) result(status)
            import
            type(accel_pool_id_t), value :: pool
            integer(c_int), value :: device
            integer(c_size_t), intent(out) :: reserved, allocated
            integer(c_int) :: status
        end function
    end interface

    interface
        function length_of(text) bind(c, name="strlen") result(length)
            import
            type(c_ptr), value :: text
            integer(c_size_t) :: length
        end function
    end interface
    private :: length_of

contains
    ! What accel_status_string says of the status, as text of Fortran's.
    function status_text(status) result(text)
        integer(c_int), intent(in) :: status
        character(:), allocatable :: text
        character(kind=c_char), pointer :: letters(:)
        type(c_ptr) :: said
        integer :: i
        said = accel_status_string(status)
        call c_f_pointer(said, letters, [length_of(said)])
        allocate (character(size(letters)) :: text)
        do i = 1, size(letters)
            text(i:i) = letters(i)
        end do
    end function
end module
