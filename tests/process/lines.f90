! Asks for memory as a Fortran program does, from a function of a module; lines.py compiles it.
module grids
    use iso_c_binding
    implicit none
    interface
        integer(c_int) function cuda_malloc(pointer, bytes) bind(c, name="cudaMalloc")
            import :: c_ptr, c_int, c_size_t
            type(c_ptr) :: pointer
            integer(c_size_t), value :: bytes
        end function
    end interface
contains
    subroutine make_grid(grid)
        type(c_ptr), intent(out) :: grid
        if (cuda_malloc(grid, 4000_c_size_t) /= 0) stop 1 ! line: grid
    end subroutine
end module

program solver
    use grids
    type(c_ptr) :: grid
    call make_grid(grid) ! line: solver
end program
