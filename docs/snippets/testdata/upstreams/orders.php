<?php
// The orders of an upstream: a line of ORDERS for each. X-Do has one of its steps fail.
function place(string $key): void
{
    if (($_SERVER['HTTP_X_DO'] ?? '') === 'is busy') {
        throw new Exception('rolled back');
    }
    if (!in_array($key, file(getenv('ORDERS'), FILE_IGNORE_NEW_LINES), true)) {
        file_put_contents(getenv('ORDERS'), "$key\n", FILE_APPEND);
    }
}

function confirm(): void
{
    if (($_SERVER['HTTP_X_DO'] ?? '') === 'sends no mail') {
        throw new Exception('no mail');
    }
}
