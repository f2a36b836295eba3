"""The compiler: declare, lower, differentiate, simplify, plan, emit; one folder a stage."""
