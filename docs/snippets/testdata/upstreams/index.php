<?php
require 'orders.php';
$commit = 'no';
try {
    place($_SERVER['HTTP_LATCH_KEY']);
    $commit = 'yes';
    confirm();
    http_response_code(201);
} catch (Throwable $e) {
    error_log($e);
    http_response_code(503);
}
header("Latch-Commit: $commit");
echo 'order';
