/* Calls `function` from code that may be unloaded. */
unsigned frame_call(unsigned (*function)(void));
unsigned frame_call(unsigned (*function)(void)) {
    volatile unsigned found = function(); /* prevents a tail call */
    return found;
}
