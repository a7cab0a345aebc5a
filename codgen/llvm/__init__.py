"""From the typed tree to LLVM IR, as text: functions, trees of stages, queues and validators."""
